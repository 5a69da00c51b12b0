"""Single services of app/services, with what they need faked."""
