"""The group of an application's instances: membership, leader, assignment."""
