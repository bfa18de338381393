-- An upgrade restarts a running server.
if posix.stat("/run/systemd/system") then
  rpm.execute("/usr/bin/systemctl", "daemon-reload")
  if tonumber(arg[2]) > 0 then
    rpm.execute("/usr/bin/systemctl", "try-restart", "floe.service")
  end
end
