"""What `dlq doctor` looks at; each check gives one verdict, changes nothing and raises nothing."""
