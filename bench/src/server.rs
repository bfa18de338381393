//! Server processes: started, waited for, and ended with all their children.

use std::ffi::OsStr;
use std::fs;
use std::net::TcpListener;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process_group};
use xtask::system;

use crate::http::{Connection, Origin};
use crate::programs;
use crate::tls::Certificate;

/// Starting takes seconds for the slowest server, which is written in Perl.
const START_TIMEOUT: Duration = Duration::from_secs(20);
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// The address of a server, and the processes whose CPU time and memory are its own.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Endpoint {
    pub(crate) origin: Origin,
    pub(crate) pids: Vec<u32>,
}

/// A binary cache in files, as nginx serves it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FileCache<'a> {
    /// The directory that nginx serves.
    pub(crate) root: &'a Path,
    /// The cache below it: empty, or `/path` without a slash at its end.
    pub(crate) prefix: &'a str,
    /// For TLS; none for plain HTTP.
    pub(crate) certificate: Option<&'a Certificate>,
}

/// A server that runs until this is dropped.
pub(crate) struct Server {
    pub(crate) endpoint: Endpoint,
    /// `None` for a server that was running already, and keeps running.
    child: Option<Child>,
}

impl Server {
    /// A server that is running already.
    pub(crate) fn running(endpoint: &Endpoint) -> Result<Server> {
        check_cache_info(&endpoint.origin)?;
        Ok(Server {
            endpoint: endpoint.clone(),
            child: None,
        })
    }

    /// Starts a server with a command from [`process_group_command`], and waits until it answers
    /// at `origin`. Its stderr goes to a file in `scratch`.
    pub(crate) fn start(mut command: Command, origin: Origin, scratch: &Path) -> Result<Server> {
        let stderr = scratch.join("stderr");
        let log = fs::File::create(&stderr);
        let log = log.with_context(|| format!("cannot create {}", stderr.display()))?;
        let child = command
            .stdout(Stdio::null())
            .stdin(Stdio::null())
            .stderr(log)
            .spawn()
            .with_context(|| format!("cannot start {}", command.get_program().display()))?;
        let pids = vec![child.id()];
        let mut server = Server {
            endpoint: Endpoint { origin, pids },
            child: Some(child),
        };
        server.wait_until_ready(&stderr)?;
        Ok(server)
    }

    /// Starts nginx with some workers over the files of a cache, and sends them by sendfile. Its
    /// own files go to the directory `scratch`.
    pub(crate) fn nginx(cache: &FileCache<'_>, workers: usize, scratch: &Path) -> Result<Server> {
        let port = free_port()?;
        let listen = format!("127.0.0.1:{port}");
        let config = scratch.join("nginx.conf");
        fs::create_dir_all(scratch)
            .and_then(|()| fs::write(&config, nginx_config(cache, (&listen, workers), scratch)))
            .with_context(|| format!("cannot write {}", config.display()))?;
        let mut command = process_group_command(programs::installed("nginx", "nginx")?);
        command.arg("-c").arg(config).args(["-e", "stderr"]);
        let mut origin = Origin::local(port);
        origin.prefix = cache.prefix.into();
        origin.certificate = cache.certificate.map(|tls| tls.file.clone());
        Server::start(command, origin, scratch)
    }

    /// The version of the server: its `/version` page, as harmonia has one, or else the `Server`
    /// header of a response.
    pub(crate) fn version(&self) -> Option<String> {
        let origin = &self.endpoint.origin;
        let mut connection = Connection::new(origin);
        let page = connection.fetch(&format!("{}/version", origin.prefix), "");
        if let Ok((head, body)) = page
            && head.status == 200
        {
            let text = String::from_utf8_lossy(&body);
            return text.lines().next().map(String::from);
        }
        let info = connection.fetch(&format!("{}/nix-cache-info", origin.prefix), "");
        let (head, _) = info.ok()?;
        head.header("server").map(String::from)
    }

    fn wait_until_ready(&mut self, stderr: &Path) -> Result<()> {
        let deadline = Instant::now() + START_TIMEOUT;
        loop {
            let problem = match check_cache_info(&self.endpoint.origin) {
                Ok(()) => return Ok(()),
                Err(problem) => problem,
            };
            let ended = match &mut self.child {
                Some(child) => child.try_wait().context("cannot wait for a server")?,
                None => None,
            };
            if ended.is_some() || Instant::now() > deadline {
                let text = fs::read_to_string(stderr).unwrap_or_default();
                let line = most_telling_line(&text);
                match ended {
                    Some(status) => bail!("it ended with {status}: {line}"),
                    None => bail!("it does not respond: {problem:#}; {line}"),
                }
            }
            thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let Some(child) = &mut self.child else {
            return;
        };
        let group = Pid::from_raw(child.id().cast_signed());
        let deadline = Instant::now() + STOP_TIMEOUT;
        let mut ended = false;
        let signal = |signal| group.map(|group| kill_process_group(group, signal));
        let _ = signal(Signal::TERM);
        while !ended && Instant::now() < deadline {
            ended = matches!(child.try_wait(), Ok(Some(_)));
            thread::sleep(Duration::from_millis(10));
        }
        // Send SIGKILL even if the leader has ended: its children may still run.
        let _ = signal(Signal::KILL);
        let _ = child.wait();
    }
}

/// The line of stderr that explains most: the first error, or else the last line.
fn most_telling_line(stderr: &str) -> &str {
    let is_error = |line: &&str| line.to_lowercase().contains("error");
    let lines = || stderr.lines().filter(|line| !line.trim().is_empty());
    let line = lines().find(is_error).or_else(|| lines().next_back());
    line.unwrap_or("stderr is empty").trim()
}

fn check_cache_info(origin: &Origin) -> Result<()> {
    let target = format!("{}/nix-cache-info", origin.prefix);
    let (head, _) = Connection::new(origin).fetch(&target, "")?;
    let authority = &origin.authority;
    ensure!(head.status == 200, "{authority}{target}: {}", head.status);
    Ok(())
}

/// A port that was free a moment ago.
pub(crate) fn free_port() -> Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0").context("cannot find a free port")?;
    let address = listener.local_addr().context("cannot find a free port")?;
    Ok(address.port())
}

/// A command that leads a process group of its own. With setpriv, the kernel ends it when this
/// process ends.
pub(crate) fn process_group_command(program: impl AsRef<OsStr>) -> Command {
    let mut command = match system::find_command("setpriv") {
        Some(setpriv) => {
            let mut command = Command::new(setpriv);
            command.args(["--pdeathsig", "TERM", "--"]).arg(program);
            command
        }
        None => Command::new(program),
    };
    command.process_group(0);
    command
}

/// Returns the settings of nginx, which listens on an address (`HOST:PORT`, and perhaps `http2`)
/// with a number of workers.
pub(crate) fn nginx_config(
    cache: &FileCache<'_>,
    (listen, workers): (&str, usize),
    scratch: &Path,
) -> String {
    let (root, scratch) = (cache.root.display(), scratch.display());
    // All other settings of TLS are nginx's own.
    let (ssl, certificate) = match cache.certificate {
        Some(Certificate { file, key }) => {
            let (file, key) = (file.display(), key.display());
            (
                " ssl",
                format!("ssl_certificate {file}; ssl_certificate_key {key};"),
            )
        }
        None => ("", String::new()),
    };
    // By default the workers of root become another user, who may not read the caches.
    let user = if system::is_root() { "user root;" } else { "" };
    format!(
        "{user} worker_processes {workers}; daemon off;\n\
         pid {scratch}/pid; error_log {scratch}/error.log;\n\
         events {{ worker_connections 512; }}\n\
         http {{ access_log off; sendfile on; keepalive_requests 100000000;\n\
         client_body_temp_path {scratch}/b; proxy_temp_path {scratch}/p;\n\
         fastcgi_temp_path {scratch}/f; uwsgi_temp_path {scratch}/u; scgi_temp_path {scratch}/s;\n\
         server {{ listen {listen}{ssl}; {certificate} root {root}; }} }}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_telling_line_is_the_first_error_or_the_last_line() {
        let text = "hello\nError: no key\nUsage: x\n";
        assert_eq!(most_telling_line(text), "Error: no key");
        assert_eq!(most_telling_line("hello\nbye\n\n"), "bye");
        assert_eq!(most_telling_line(""), "stderr is empty");
    }

    #[test]
    fn dropped_server_ends_all_its_children() {
        let start = Instant::now();
        let mut child = process_group_command("sh")
            .args(["-c", "sleep 100 & sleep 100"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut pipe = child.stdout.take().unwrap();
        drop(Server {
            endpoint: Endpoint {
                origin: Origin::local(1),
                pids: vec![child.id()],
            },
            child: Some(child),
        });
        // The pipe is at its end when the last process that holds it has ended.
        std::io::Read::read_to_end(&mut pipe, &mut Vec::new()).unwrap();
        assert!(start.elapsed() < Duration::from_secs(90));
    }
}
