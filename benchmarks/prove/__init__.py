"""Campaigns that prove what dlq promises about failures, and the page of their last runs."""
