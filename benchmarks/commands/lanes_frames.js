// Each frame moves the picture: down by a lane, right by a little. Frames are counted as they come.
async ({ picture, tall, seconds }) => {
  const { Lanes } = await import('/lanes.js');
  const lanes = new Lanes(document.querySelector('canvas'));
  lanes.tall = tall;
  lanes.move(picture.from, picture.span, 0);
  lanes.show(picture);
  const frame = () => new Promise((go) => requestAnimationFrame(go));
  await frame();
  let frames = 0, busy = 0, way = 1;
  const draw = lanes.draw.bind(lanes);
  lanes.draw = () => { const at = performance.now(); draw(); busy += performance.now() - at; };
  const begin = performance.now();
  while (performance.now() - begin < 1000 * seconds) {
    const top = lanes.top;
    lanes.move(lanes.from + 20 * way, lanes.span, top + tall * way);
    if (lanes.top === top && tall > 1) way = -way;
    await frame();
    frames += 1;
  }
  return { frames: (1000 * frames) / (performance.now() - begin), draw: busy / frames };
}
