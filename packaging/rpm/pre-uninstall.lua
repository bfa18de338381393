-- arg[2] is the number of versions that stay: an upgrade keeps the unit enabled.
if rpm.execute and tonumber(arg[2]) == 0 and posix.stat("/usr/bin/systemctl") then
  rpm.execute("/usr/bin/systemctl", "--no-reload", "disable", "floe.service")
  if posix.stat("/run/systemd/system") then
    rpm.execute("/usr/bin/systemctl", "stop", "floe.service")
  end
end
