"""The page of a running application: its parts, which `http.endpoint_app.show_page` joins to one file."""
