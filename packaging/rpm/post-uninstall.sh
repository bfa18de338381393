# The upgrade to a later version restarts a running server, but not its sockets, so that no request
# is lost.
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload || :
	if [ "$1" -gt 0 ]; then
		systemctl try-restart floe.service || :
	fi
fi
# The tool that makes the package cannot make it own directories, and rpm removes only those.
if [ "$1" -eq 0 ]; then
	for directory in doc/floe/docs doc/floe/examples doc/floe licenses/floe; do
		rmdir "/usr/share/$directory" 2>/dev/null || :
	done
fi
