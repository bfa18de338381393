//! The name resolver of the static binary.
//!
//! `getaddrinfo` of glibc loads the libraries that `/etc/nsswitch.conf` names. For a static program
//! these libraries are missing, or belong to another glibc. Therefore the static binary reads
//! `/etc/hosts` itself and then queries the servers of `/etc/resolv.conf`. All other builds use the
//! system's resolver, which knows more sources of names.

use std::error::Error as StdError;
use std::fs;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use hickory_resolver::config::{LookupIpStrategy, ResolverConfig, ResolverOpts};
use hickory_resolver::lookup_ip::LookupIp;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::ProtoError;
use hickory_resolver::proto::op::{Query, ResponseCode};
use hickory_resolver::proto::rr::{Name as RecordName, RecordType};
use hickory_resolver::system_conf::parse_resolv_conf;
use hickory_resolver::{Hosts, TokioResolver};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

/// Whether this build cannot use the system's resolver.
pub(crate) const IS_NEEDED: bool = cfg!(all(target_env = "gnu", target_feature = "crt-static"));

/// Looks up names in `/etc/hosts`, then with name servers. Reads the files at the first lookup.
#[derive(Debug, Default)]
pub(crate) struct HostsAndDnsResolver(Arc<OnceLock<(Hosts, NameServers)>>);

/// The name servers. The combined resolver queries two of them at once.
#[derive(Debug)]
struct NameServers {
    combined: TokioResolver,
    /// One resolver for each server.
    individual: Vec<TokioResolver>,
}

impl Resolve for HostsAndDnsResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let state = self.0.clone();
        Box::pin(async move {
            let (hosts, servers) = match state.get() {
                Some(read) => read,
                // If two lookups come first at once, both read the files, and one result is kept.
                None => {
                    let servers = NameServers::from_file(Path::new("/etc/resolv.conf"))?;
                    let hosts = read_hosts(Path::new("/etc/hosts"));
                    state.get_or_init(|| (hosts, servers))
                }
            };
            // As with glibc, an entry in the file wins, even if it has only one address family.
            let named = lookup_hosts(hosts, name.as_str());
            if !named.is_empty() {
                return Ok(Box::new(named.into_iter()) as Addrs);
            }
            let found = servers.lookup(record_name(name.as_str())?).await;
            let found = found.map_err(|error| describe(&error))?;
            let addresses: Vec<SocketAddr> = found.iter().map(|ip| (ip, 0).into()).collect();
            Ok(Box::new(addresses.into_iter()) as Addrs)
        })
    }
}

/// Describes why the name servers found no address. The texts of the library show its own types.
fn describe(error: &NetError) -> String {
    let refused = |code: ResponseCode| format!("the name server replied: {code}");
    match error {
        NetError::Dns(DnsError::NoRecordsFound(none)) => match none.response_code {
            ResponseCode::NXDomain => "there is no such host".into(),
            ResponseCode::NoError => "the name servers know no address of the host".into(),
            code => refused(code),
        },
        NetError::Dns(DnsError::ResponseCode(code)) => refused(*code),
        NetError::Timeout => "no name server replied in time".into(),
        other => other.to_string(),
    }
}

/// Parses a name. As with the system's resolver, it need not be a host name by RFC 952; an
/// underscore is allowed.
fn record_name(name: &str) -> Result<RecordName, ProtoError> {
    RecordName::from_str_relaxed(name)
}

/// Reads the hosts file, if there is one. Invalid bytes spoil only their own line.
fn read_hosts(file: &Path) -> Hosts {
    let mut hosts = Hosts::default();
    let text = read_if_present(file).unwrap_or_default();
    // The parser skips lines that it does not understand, as the system's resolver does.
    let _: io::Result<()> = hosts.read_hosts_conf(text.as_bytes());
    hosts
}

/// Returns the addresses of a name in the hosts file.
fn lookup_hosts(hosts: &Hosts, name: &str) -> Vec<SocketAddr> {
    let Ok(name) = record_name(name) else {
        return Vec::new();
    };
    let mut addresses = Vec::new();
    for family in [RecordType::AAAA, RecordType::A] {
        let query = Query::query(name.clone(), family);
        let found = hosts.lookup_static_host(&query);
        let records = found.iter().flat_map(|found| found.answers());
        addresses.extend(records.filter_map(|record| record.data.ip_addr()));
    }
    addresses.into_iter().map(|ip| (ip, 0).into()).collect()
}

/// Whether all servers have replied that the name does not exist. "No addresses" is weaker: one
/// server may have no address of one family while another server failed for the other family.
fn is_nxdomain(error: &NetError) -> bool {
    matches!(
        error,
        NetError::Dns(DnsError::NoRecordsFound(none))
            if none.response_code == ResponseCode::NXDomain
    )
}

type Failure = Box<dyn StdError + Send + Sync>;

impl NameServers {
    fn from_file(resolv_conf: &Path) -> Result<NameServers, Failure> {
        let (config, options) = configure(resolv_conf)?;
        Ok(NameServers::new(&config, &options)?)
    }

    fn new(config: &ResolverConfig, options: &ResolverOpts) -> Result<NameServers, NetError> {
        let build = |config| {
            let provider = TokioRuntimeProvider::default();
            let builder = TokioResolver::builder_with_config(config, provider);
            builder.with_options(options.clone()).build()
        };
        let individual = config.name_servers.iter().map(|server| {
            let mut config = config.clone();
            config.name_servers = vec![server.clone()];
            build(config)
        });
        Ok(NameServers {
            individual: individual.collect::<Result<_, _>>()?,
            combined: build(config.clone())?,
        })
    }

    /// Looks up the addresses of a name. If the combined lookup fails, tries each server: a server
    /// that fails at once must not hide the reply of a slower one.
    async fn lookup(&self, name: RecordName) -> Result<LookupIp, NetError> {
        let found = self.combined.lookup_ip(name.clone()).await;
        let Err(error @ NetError::Dns(_)) = found else {
            return found;
        };
        if is_nxdomain(&error) {
            return Err(error);
        }
        for server in &self.individual {
            if let Ok(found) = server.lookup_ip(name.clone()).await {
                return Ok(found);
            }
        }
        Err(error)
    }
}

/// Returns the servers and the options of their queries.
fn configure(resolv_conf: &Path) -> Result<(ResolverConfig, ResolverOpts), Failure> {
    let read_error = |error: &dyn StdError| -> Failure {
        format!("cannot read {}: {error}", resolv_conf.display()).into()
    };
    let mut text = read_if_present(resolv_conf).map_err(|error| read_error(&error))?;
    // If the file names no server, it means the server on this machine: see resolv.conf(5).
    let mut keywords = text.lines().map(|line| line.split_whitespace().next());
    let is_implied = !keywords.any(|keyword| keyword == Some("nameserver"));
    if is_implied {
        text.push_str("\nnameserver 127.0.0.1\n");
    }
    let (mut config, mut options) = parse_resolv_conf(text).map_err(|error| read_error(&error))?;
    // A name is unknown only if all servers reply so. floe queries two servers at once, and they
    // may know different names, such as the server of a company and a public one. glibc queries
    // only the first server as long as it replies; that would cost a whole timeout if the first
    // server is dead.
    for server in &mut config.name_servers {
        server.trust_negative_responses = false;
    }
    // The client tries both address families, the second soon after the first.
    options.ip_strategy = LookupIpStrategy::Ipv6AndIpv4;
    if is_implied {
        options.timeout = LOCAL_TIMEOUT;
    }
    Ok((config, options))
}

/// Reads a file. An absent file is empty.
fn read_if_present(resolv_conf: &Path) -> io::Result<String> {
    match fs::read(resolv_conf) {
        Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(String::new()),
        Err(error) => Err(error),
    }
}

/// The timeout of a query to the implied server on this machine. Most machines have none, and the
/// resolver does not notice that the datagram was refused, so each lookup takes this time. If there
/// is a forwarder that needs longer, the resolver queries it again, and then it often has the
/// reply.
const LOCAL_TIMEOUT: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use std::iter::zip;
    use std::net::{IpAddr, UdpSocket};
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::thread;

    use super::*;

    /// Returns the name servers of a resolv.conf with this text, or of an absent one.
    fn servers(text: Option<&str>) -> Vec<IpAddr> {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("resolv.conf");
        if let Some(text) = text {
            fs::write(&file, text).unwrap();
        }
        let (config, _) = configure(&file).unwrap();
        let servers = config.name_servers().iter();
        servers.map(|server| server.ip).collect()
    }

    #[test]
    fn resolver_uses_only_configured_or_local_servers() {
        let own: Vec<IpAddr> = vec!["127.0.0.1".parse().unwrap()];
        assert_eq!(servers(None), own);
        assert_eq!(servers(Some("search example.org")), own);
        assert_eq!(servers(Some("# nameserver 192.0.2.1\n")), own);
        let named: Vec<IpAddr> = vec!["192.0.2.1".parse().unwrap(), "2001:db8::1".parse().unwrap()];
        let text = "options ndots:2\nnameserver 192.0.2.1\n nameserver\t2001:db8::1 # second\n";
        assert_eq!(servers(Some(text)), named);
    }

    /// Replies to each query with this code, and sends a message each time.
    fn reply_with_code(socket: &UdpSocket, code: u8, replied: &Sender<()>) {
        let mut packet = [0; 512];
        while let Ok((len, from)) = socket.recv_from(&mut packet) {
            // A response, with "recursion available".
            packet[2] |= 0x80;
            packet[3] = 0x80 | code;
            socket.send_to(&packet[..len], from).unwrap();
            replied.send(()).ok();
        }
    }

    /// Replies with 192.0.2.7, but not before the other server has replied.
    fn reply_after(socket: &UdpSocket, other: &Receiver<()>) {
        let mut packet = [0; 512];
        while let Ok((len, from)) = socket.recv_from(&mut packet) {
            let mut reply = packet[..len].to_vec();
            reply[2] |= 0x80;
            reply[3] = 0x80;
            if packet[len - 4..len] == [0, 1, 0, 1] {
                // One record for the queried name, valid for a minute.
                reply[7] = 1;
                reply.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 192, 0, 2, 7]);
            }
            if other.recv().is_err() {
                return;
            }
            socket.send_to(&reply, from).unwrap();
        }
    }

    #[test]
    fn nxdomain_from_fast_server_does_not_hide_slow_reply() {
        const NO_SUCH_NAME: u8 = 3;
        assert_eq!(lookup_with_failing_server(NO_SUCH_NAME), ["192.0.2.7"]);
    }

    #[test]
    fn failure_of_fast_server_does_not_hide_slow_reply() {
        const SERVER_FAILURE: u8 = 2;
        const REFUSED: u8 = 5;
        for code in [SERVER_FAILURE, REFUSED] {
            assert_eq!(
                lookup_with_failing_server(code),
                ["192.0.2.7"],
                "code {code}"
            );
        }
    }

    #[test]
    fn failed_lookup_is_described_without_structures_of_the_library() {
        let described = |code| describe(&lookup_with_failing_servers(code));
        assert_eq!(described(3), "there is no such host");
        assert_eq!(described(0), "the name servers know no address of the host");
        assert_eq!(described(5), "the name server replied: Query Refused");
    }

    /// Looks up a name while both servers reply with this code and without records.
    fn lookup_with_failing_servers(code: u8) -> NetError {
        let sockets = ["127.0.0.1", "127.0.0.2"].map(|host| UdpSocket::bind((host, 0)).unwrap());
        let servers = sockets
            .each_ref()
            .map(|socket| socket.local_addr().unwrap());
        for socket in sockets {
            let (replied, _) = channel();
            thread::spawn(move || reply_with_code(&socket, code, &replied));
        }
        lookup_at(servers).unwrap_err()
    }

    /// Looks up a name while the first server replies with this code, and the second one later.
    fn lookup_with_failing_server(code: u8) -> Vec<String> {
        let sockets = ["127.0.0.1", "127.0.0.2"].map(|host| UdpSocket::bind((host, 0)).unwrap());
        let servers = sockets
            .each_ref()
            .map(|socket| socket.local_addr().unwrap());
        let [first, second] = sockets;
        let (replied, other) = channel();
        // The threads end with the program.
        thread::spawn(move || reply_with_code(&first, code, &replied));
        thread::spawn(move || reply_after(&second, &other));
        let found = lookup_at(servers).unwrap();
        found.iter().map(|address| address.to_string()).collect()
    }

    /// Looks up a name at these servers, with the settings of a resolv.conf.
    fn lookup_at(addresses: [SocketAddr; 2]) -> Result<LookupIp, NetError> {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("resolv.conf");
        let [first, second] = addresses.map(|address| address.ip());
        fs::write(&file, format!("nameserver {first}\nnameserver {second}\n")).unwrap();
        let (config, options) = configure(&file).unwrap();
        let servers = zip(config.name_servers(), addresses).map(|(server, address)| {
            let mut server = server.clone();
            // resolv.conf cannot name a port.
            server.connections.truncate(1);
            server.connections[0].port = address.port();
            server
        });
        let config = ResolverConfig::from_parts(None, Vec::new(), servers.collect());
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.enable_all().build().unwrap();
        runtime.block_on(async {
            let servers = NameServers::new(&config, &options).unwrap();
            let name = record_name("cache.floe.test.").unwrap();
            servers.lookup(name).await
        })
    }

    #[test]
    fn hosts_file_lookup_returns_its_addresses() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("hosts");
        let text = b"# caf\xe9\n127.0.0.1 one.example two.example # three.example\n\
                     192.0.2.1 \xff\n::1 two.example\n";
        fs::write(&file, text).unwrap();
        let hosts = read_hosts(&file);
        let found = |name| {
            let addresses = lookup_hosts(&hosts, name).into_iter();
            addresses
                .map(|address| address.ip().to_string())
                .collect::<Vec<_>>()
        };
        assert_eq!(found("one.example"), ["127.0.0.1"]);
        assert_eq!(found("Two.Example"), ["::1", "127.0.0.1"]);
        assert_eq!(found("three.example"), [""; 0]);
        assert_eq!(found("not a name"), [""; 0]);
    }

    #[test]
    fn record_name_accepts_underscore() {
        assert!(record_name("my_cache.example").is_ok());
        assert!(record_name("").is_err() || record_name("a..b").is_err());
    }

    #[test]
    fn unreadable_resolv_conf_is_named_in_error() {
        let directory = tempfile::tempdir().unwrap();
        let error = NameServers::from_file(directory.path())
            .unwrap_err()
            .to_string();
        assert!(
            error.contains(&directory.path().display().to_string()),
            "{error}"
        );
    }
}
