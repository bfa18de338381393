# The argument is the number of versions that stay: an upgrade keeps the units enabled.
if [ "$1" -eq 0 ] && [ -x /usr/bin/systemctl ]; then
	systemctl --no-reload disable floe.service floe.socket floe-metrics.socket || :
	if [ -d /run/systemd/system ]; then
		# A socket that stays would start the server again.
		systemctl stop floe.socket floe-metrics.socket floe.service || :
	fi
fi
