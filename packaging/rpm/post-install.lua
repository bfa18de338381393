-- Makes a running systemd read the unit. The unit is not enabled. rpm before 4.15 has no rpm.execute.
if rpm.execute and posix.stat("/run/systemd/system") then
  rpm.execute("/usr/bin/systemctl", "daemon-reload")
end
