//! The URI of a store on another machine: `ssh-ng://[USER@]HOST[:PORT]`, or `ssh://` for the older
//! protocol.

use std::fmt;
use std::fs::File;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use floe_format::StoreDir;
use floe_transfer::store_uri::{parse_bool, percent_decode_text};
use floe_transfer::{
    Error, IgnoredParameter, OpenTarget, Session, Source, SourceContext, StoreConfig, StoreFacts,
    StoreUri, TargetContext, UriContext, UriParameters,
};

use super::command::{KnownHosts, SshCommand};
use floe_wire::Protocol;

use crate::connection::{Connection, DaemonAddress, Open, parse_compression};
use crate::error::RemoteError;
use crate::source::{RemoteSource, RemoteSourceOptions, notify};
use crate::stream::Stream;
use crate::writer::{RemoteTarget, RemoteTargetOptions};

/// A store on another machine, as its URI describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SshUri {
    ssh: SshCommand,
    dir: StoreDir,
    /// Whether to compress the connection to another floe, if the user has said so.
    compresses: Option<bool>,
    options: RemoteSourceOptions,
    ignored: Vec<IgnoredParameter>,
    /// The URI without parameters.
    name: String,
}

impl SshUri {
    /// Reads the parts of a URI, with Nix's parameters.
    ///
    /// Errors: the text says which part is wrong.
    pub fn parse(uri: &StoreUri, context: &UriContext) -> Result<SshUri, String> {
        // The zone of an IPv6 address may follow a bare percent sign.
        let address = match percent_decode_text(&uri.address) {
            Err(_) if uri.address.contains("::") => uri.address.clone(),
            decoded => decoded?,
        };
        let (destination, host, port) = split_address(&address)?;
        let options = shell_words::split(&context.ssh_options)
            .map_err(|error| format!("NIX_SSHOPTS cannot be split into words: {error}"))?;
        let (protocol, program) = match uri.scheme.as_str() {
            "ssh" => (Protocol::Serve, "nix-store"),
            _ => (Protocol::Worker, "nix-daemon"),
        };
        let mut store = SshUri {
            ssh: SshCommand {
                protocol,
                destination,
                host,
                port,
                key: None,
                host_key: None,
                compress: false,
                remote_program: vec![program.into()],
                is_program_given: false,
                connect_timeout: context.connect_timeout,
                remote_store: None,
                options,
                temporary_dir: context
                    .temporary_dir
                    .clone()
                    .unwrap_or_else(|| "/tmp".into()),
            },
            dir: context.store_dir.clone().unwrap_or_default(),
            compresses: None,
            options: RemoteSourceOptions::default(),
            ignored: Vec::new(),
            name: format!("{}://{address}", uri.scheme),
        };
        for (name, value) in &uri.parameters {
            match name.as_str() {
                "ssh-key" => store.ssh.key = Some(value.into()),
                "base64-ssh-public-host-key" => store.ssh.host_key = Some(host_key(value)?),
                "compress" => store.ssh.compress = parse_bool(name, value)?,
                "compression" if protocol == Protocol::Worker => {
                    store.compresses = Some(parse_compression(value)?);
                }
                "remote-program" => {
                    store.ssh.remote_program = words(name, value)?;
                    store.ssh.is_program_given = true;
                }
                "remote-store" => store.ssh.remote_store = Some(value.clone()),
                "store" => store.dir = StoreDir::new(value).map_err(|error| error.to_string())?,
                _ if store.options.set(name, value)? => {}
                other => store.ignored.extend(PARAMETERS.ignored(uri, other)),
            }
        }
        Ok(store)
    }

    /// Whether the other end is another machine, and ssh does not compress already.
    fn is_far(&self) -> bool {
        let host = self.ssh.host.as_str();
        let is_loopback = match host.parse::<IpAddr>() {
            Ok(address) => address.is_loopback(),
            Err(_) => host == "localhost",
        };
        !is_loopback && !self.ssh.compress
    }

    /// Returns a function that opens further connections.
    fn opener(&self, session: &Session) -> Open {
        let session = Session::new(session.cancel.clone(), session.events.clone());
        let uri = self.clone();
        Box::new(move || uri.connect(&session, || {}))
    }

    fn connect(
        &self,
        session: &Session,
        opened: impl FnOnce() + Send + 'static,
    ) -> Result<Connection, Error> {
        let failed = |error: &io::Error| RemoteError::Connect {
            uri: self.name.clone(),
            reason: self.reason(error),
        };
        let (command, known_hosts) = self.ssh.build().map_err(|error| failed(&error))?;
        let advice = match &known_hosts {
            Some(_) => OTHER_HOST_KEY,
            None => TRY_SSH,
        };
        let stream = Stream::start((command, advice), &self.name, &session.events);
        let stream = stream.map_err(|error| failed(&error))?;
        // ssh has read the file when the connection is open.
        let opened = move || {
            drop::<Option<KnownHosts>>(known_hosts);
            opened();
        };
        let address = DaemonAddress {
            protocol: self.ssh.protocol,
            name: self.name.clone(),
            dir: self.dir.clone(),
            wants_compression: self.compresses.unwrap_or_else(|| self.is_far()),
        };
        Connection::open(stream, address, session, opened)
    }

    /// Waits until ssh may no longer ask for a password on the terminal, so that the display of
    /// progress does not disturb it.
    fn wait_for_login(&self, connection: &Connection) -> Result<(), Error> {
        if !self.ssh.is_localhost() && File::open(TERMINAL).is_ok() {
            connection.wait_until_open()?;
        }
        Ok(())
    }

    /// Explains why the program cannot be started.
    fn reason(&self, error: &io::Error) -> String {
        let program = if self.ssh.is_localhost() {
            self.ssh.remote_program.first().map_or("", String::as_str)
        } else {
            "ssh"
        };
        match error.kind() {
            io::ErrorKind::NotFound => format!("there is no program {program}; install it"),
            _ => format!("the program {program} does not start: {error}"),
        }
    }
}

/// The remedies for a failure of ssh itself.
const TRY_SSH: &str = "; try to log in with ssh itself";
const OTHER_HOST_KEY: &str = "; perhaps the host has another key than the one of \
                              base64-ssh-public-host-key";

/// Splits `[USER@]HOST[:PORT]` into the destination for ssh, the host and the port.
fn split_address(address: &str) -> Result<(String, String, Option<u16>), String> {
    let (user, rest) = match address.rsplit_once('@') {
        Some((user, rest)) => (Some(user), rest),
        None => (None, address),
    };
    let (host, port) = match rest.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, "")) => (host, None),
        Some((host, port)) => match port.strip_prefix(':') {
            Some(port) => (host, Some(port)),
            None => return Err(format!("{port:?} follows the address; use [ADDRESS]:PORT")),
        },
        None => match rest.split_once(':') {
            // An IPv6 address without brackets has no port.
            Some((_, more)) if more.contains(':') => (rest, None),
            Some((host, port)) => (host, Some(port)),
            None => (rest, None),
        },
    };
    let is_option = |text: &str| text.starts_with('-');
    if host.is_empty() || is_option(host) || user.is_some_and(|it| it.is_empty() || is_option(it)) {
        return Err("a user and a host follow ://; use ssh-ng://USER@HOST".into());
    }
    if user.is_some_and(|user| user.contains(':')) {
        return Err("ssh takes no password from a URI; use a key, or let ssh ask for it".into());
    }
    if host.contains('/') {
        return Err("the address has a path; name the store there with ?remote-store=".into());
    }
    let port = port.map(|port| {
        let parsed = port.parse::<u16>();
        parsed.map_err(|_| format!("{port:?} is not a port"))
    });
    let destination = match user {
        Some(user) => format!("{user}@{host}"),
        None => host.to_owned(),
    };
    Ok((destination, host.to_owned(), port.transpose()?))
}

fn host_key(value: &str) -> Result<String, String> {
    let decoded = data_encoding::BASE64.decode(value.as_bytes()).ok();
    let text = decoded.and_then(|bytes| String::from_utf8(bytes).ok());
    let key = text.map(|text| text.trim().to_owned());
    key.filter(|key| !key.contains('\n')).ok_or_else(|| {
        "base64-ssh-public-host-key is the line of a public key in base64; use the output of \
         base64 -w0 /etc/ssh/ssh_host_ed25519_key.pub"
            .into()
    })
}

fn words(name: &str, value: &str) -> Result<Vec<String>, String> {
    match shell_words::split(value) {
        Ok(words) if !words.is_empty() => Ok(words),
        _ => Err(format!("{name} is a program with its arguments")),
    }
}

impl fmt::Display for SshUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl StoreConfig for SshUri {
    fn facts(&self) -> StoreFacts<'_> {
        StoreFacts {
            can_substitute: true,
            is_trusted: self.options.is_trusted,
            // The settings of this machine do not decide about the other side: only the user does.
            requires_signatures: Some(true),
            ignored_parameters: &self.ignored,
            ..StoreFacts::default()
        }
    }

    fn open_source(&self, context: &SourceContext<'_>) -> Result<Arc<dyn Source>, Error> {
        let connection = self.connect(context.session, notify(&context.opened))?;
        // One of several caches must not delay the others.
        if !context.are_substituters {
            self.wait_for_login(&connection)?;
        }
        let reopen = self.opener(context.session);
        let source = RemoteSource::new(connection, reopen, self.options);
        Ok(Arc::new(source))
    }

    fn open_target(&self, context: &TargetContext<'_>) -> Result<OpenTarget, Error> {
        let connection = self.connect(context.session, || {})?;
        self.wait_for_login(&connection)?;
        // Without frames, an incomplete NAR could only be refused by the end of its connection.
        let is_parallel = self.ssh.is_localhost() && self.ssh.protocol == Protocol::Worker;
        let open = is_parallel.then(|| self.opener(context.session));
        let options = RemoteTargetOptions {
            dry_run: context.dry_run,
            substitutes: context.substitutes,
            requires_trust: false,
        };
        Ok(OpenTarget {
            target: Arc::new(RemoteTarget::new(connection, open, options)),
            local_store: None,
        })
    }
}

/// The terminal of this process, if it has one.
const TERMINAL: &str = "/dev/tty";

/// The parameters of a store on another machine.
const PARAMETERS: UriParameters = UriParameters {
    used: &[
        "base64-ssh-public-host-key",
        "compress",
        "compression",
        "priority",
        "remote-program",
        "remote-store",
        "ssh-key",
        "store",
        "trusted",
    ],
    irrelevant: &[
        "max-connection-age",
        "max-connections",
        "path-info-cache-size",
        "system-features",
        "want-mass-query",
    ],
    unsupported: &[],
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_has_user_host_and_port() {
        let split = |address: &str| split_address(address).unwrap();
        let parts =
            |destination: &str, host: &str, port| (destination.to_owned(), host.to_owned(), port);
        assert_eq!(split("host"), parts("host", "host", None));
        assert_eq!(split("me@host:2222"), parts("me@host", "host", Some(2222)));
        assert_eq!(split("me@[::1]:22"), parts("me@::1", "::1", Some(22)));
        assert_eq!(split("[fe80::1]"), parts("fe80::1", "fe80::1", None));
        for bare in [
            "::1",
            "fe80::1%eth0",
            "fea5:23e1:3916:fc24:cb52:2837:2ecb:ea8e",
        ] {
            assert_eq!(split(bare), parts(bare, bare, None));
            let with_user = format!("u@{bare}");
            assert_eq!(split(&with_user), parts(&with_user, bare, None));
        }
        for address in [
            "",
            "@host",
            "me:secret@host",
            "-oProxyCommand=x",
            "-x@host",
            "host:x",
            "host/store",
            "[::1]x",
        ] {
            assert!(split_address(address).is_err(), "{address}");
        }
    }
}
