# The argument is the number of versions that stay: an upgrade keeps the unit enabled.
if [ "$1" -eq 0 ] && [ -x /usr/bin/systemctl ]; then
	systemctl --no-reload disable floe.service || :
	if [ -d /run/systemd/system ]; then
		systemctl stop floe.service || :
	fi
fi
