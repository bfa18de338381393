# The user for servers that need a fixed one. It stays when the package is removed, because files may
# belong to it.
if [ -x /usr/bin/systemd-sysusers ]; then
	systemd-sysusers floe.conf || :
fi
# A running systemd reads the units, which are not enabled.
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload || :
fi
