-- Makes a running systemd read the unit. The unit is not enabled.
if posix.stat("/run/systemd/system") then
  rpm.execute("/usr/bin/systemctl", "daemon-reload")
end
