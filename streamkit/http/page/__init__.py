"""The page of a running application: its parts, which `application_page` joins to one file."""
