"""What every service process needs: settings, logs, exit codes, its event publisher and the fork server."""
