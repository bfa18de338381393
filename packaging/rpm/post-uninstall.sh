# The upgrade to a later version restarts a running server.
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload || :
	if [ "$1" -gt 0 ]; then
		systemctl try-restart floe.service || :
	fi
fi
