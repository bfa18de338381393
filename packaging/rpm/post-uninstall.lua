-- The upgrade to a later version restarts a running server.
if rpm.execute and posix.stat("/run/systemd/system") then
  rpm.execute("/usr/bin/systemctl", "daemon-reload")
  if tonumber(arg[2]) > 0 then
    rpm.execute("/usr/bin/systemctl", "try-restart", "floe.service")
  end
end
