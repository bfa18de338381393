//! Names of hosts, where the system's own resolver is out of reach.
//!
//! `getaddrinfo` of glibc loads what `/etc/nsswitch.conf` names from the machine it runs on. In a
//! statically linked program those libraries are of another glibc than its own, or are not there;
//! so the static binary asks the servers of `/etc/resolv.conf` itself, after `/etc/hosts`. All
//! others use the system's resolver, which knows more than these two files.

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

/// Whether the system's resolver is out of reach of this program.
pub(super) const IS_NEEDED: bool = cfg!(all(target_env = "gnu", target_feature = "crt-static"));

/// Asks the file of hosts, then name servers. The files are read at the first question.
#[derive(Debug, Default)]
pub(super) struct HostsAndDnsResolver(Arc<OnceLock<ResolverState>>);

/// Whom a name is asked of.
#[derive(Debug)]
struct ResolverState {
    hosts: Hosts,
    servers: NameServers,
}

/// The name servers, two of which are asked at once.
#[derive(Debug)]
struct NameServers {
    combined: TokioResolver,
    /// Each by itself.
    individual: Vec<TokioResolver>,
}

impl Resolve for HostsAndDnsResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let state = self.0.clone();
        Box::pin(async move {
            let state = match state.get() {
                Some(state) => state,
                // Where two come first at once, both read the files, and one is kept.
                None => {
                    let made = ResolverState {
                        hosts: read_hosts(Path::new(HOSTS)),
                        servers: NameServers::from_file(Path::new(RESOLV_CONF))?,
                    };
                    state.get_or_init(|| made)
                }
            };
            // What is named there nobody else is asked for, not even for its other family.
            let named = lookup_hosts(&state.hosts, name.as_str());
            if !named.is_empty() {
                return Ok(Box::new(named.into_iter()) as Addrs);
            }
            let found = state.servers.lookup(record_name(name.as_str())?).await?;
            let addresses: Vec<SocketAddr> = found.iter().map(|ip| (ip, 0).into()).collect();
            Ok(Box::new(addresses.into_iter()) as Addrs)
        })
    }
}

/// A name as it is asked for. It need not be that of a host as RFC 952 wants it: the system's
/// resolver takes an underscore too.
fn record_name(name: &str) -> Result<RecordName, ProtoError> {
    RecordName::from_str_relaxed(name)
}

/// What stands in the file of hosts, if there is one; an odd byte in it spoils its own line alone.
fn read_hosts(file: &Path) -> Hosts {
    let mut hosts = Hosts::default();
    let text = read_if_present(file).unwrap_or_default();
    // What it does not understand it leaves out; nobody is there to be told.
    let _: io::Result<()> = hosts.read_hosts_conf(text.as_bytes());
    hosts
}

/// The addresses that a file of hosts has for a name.
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

/// Whether there is no such name, say all servers. That it has no addresses may be what one of them
/// says of one family, while another has failed at the other.
fn is_nxdomain(error: &NetError) -> bool {
    match error {
        NetError::Dns(DnsError::NoRecordsFound(none)) => {
            none.response_code == ResponseCode::NXDomain
        }
        _ => false,
    }
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
        let (domain, search) = (config.domain(), config.search());
        let servers = config.name_servers().iter();
        let individual = servers.map(|server| {
            let server = vec![server.clone()];
            build(ResolverConfig::from_parts(
                domain.cloned(),
                search.to_vec(),
                server,
            ))
        });
        Ok(NameServers {
            individual: individual.collect::<Result<_, _>>()?,
            combined: build(config.clone())?,
        })
    }

    /// The addresses of a name. That a server has failed says nothing of the others: the answer of
    /// one that fails at once would else hide that of one that has to ask somebody.
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

/// The servers to ask, and how.
fn configure(resolv_conf: &Path) -> Result<(ResolverConfig, ResolverOpts), Failure> {
    let read_error = |error: &dyn StdError| -> Failure {
        format!("reading {}: {error}", resolv_conf.display()).into()
    };
    let mut text = read_if_present(resolv_conf).map_err(|error| read_error(&error))?;
    // Where the file names no server it implies the one on this machine, says resolv.conf(5).
    // Nobody else's servers are asked unless somebody has named them.
    let is_implied = !has_nameserver(&text);
    if is_implied {
        text.push_str("\nnameserver 127.0.0.1\n");
    }
    let (config, mut options) = parse_resolv_conf(text).map_err(|error| read_error(&error))?;
    let config = distrust_negative_answers(&config);
    // The connection is tried with both families, the second soon after the first.
    options.ip_strategy = LookupIpStrategy::Ipv6AndIpv4;
    if is_implied {
        options.timeout = LOCAL_TIMEOUT;
    }
    Ok((config, options))
}

/// The same servers, of whom none speaks for the others where it does not know a name. Two are
/// asked at once, and they may know different names: that of a company's network and a public one.
/// glibc asks the first alone as long as it answers. To do so here would cost the whole time for an
/// answer where the first is dead; so a name is unknown when all have said so.
fn distrust_negative_answers(config: &ResolverConfig) -> ResolverConfig {
    let servers = config.name_servers().iter().cloned();
    let servers = servers.map(|mut server| {
        server.trust_negative_responses = false;
        server
    });
    let (domain, search) = (config.domain().cloned(), config.search().to_vec());
    ResolverConfig::from_parts(domain, search, servers.collect())
}

/// The text of the file; nothing where there is none.
fn read_if_present(resolv_conf: &Path) -> io::Result<String> {
    match fs::read(resolv_conf) {
        Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(String::new()),
        Err(error) => Err(error),
    }
}

fn has_nameserver(text: &str) -> bool {
    text.lines()
        .any(|line| line.split_whitespace().next() == Some("nameserver"))
}

const HOSTS: &str = "/etc/hosts";

const RESOLV_CONF: &str = "/etc/resolv.conf";

/// For an answer from this machine, which mostly has no name server: nobody refuses a datagram in
/// a way that is heard here, so that this is what a name costs that has nobody to be asked of. A
/// forwarder that is there and has to ask others is asked again, and by then it often knows.
const LOCAL_TIMEOUT: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use std::iter::zip;
    use std::net::{IpAddr, UdpSocket};
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::thread;

    use super::*;

    /// The name servers that are asked under a file, or without any.
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

    /// Answers with this code, and says each time that it did.
    fn answer_with_code(socket: &UdpSocket, code: u8, answered: &Sender<()>) {
        let mut packet = [0; 512];
        while let Ok((len, from)) = socket.recv_from(&mut packet) {
            // An answer, to whom recursion is available.
            packet[2] |= 0x80;
            packet[3] = 0x80 | code;
            socket.send_to(&packet[..len], from).unwrap();
            answered.send(()).ok();
        }
    }

    /// Answers with 192.0.2.7, but not before the other server has answered.
    fn answer_after(socket: &UdpSocket, other: &Receiver<()>) {
        let mut packet = [0; 512];
        while let Ok((len, from)) = socket.recv_from(&mut packet) {
            let mut answer = packet[..len].to_vec();
            answer[2] |= 0x80;
            answer[3] = 0x80;
            if packet[len - 4..len] == [0, 1, 0, 1] {
                // One record, of the name that was asked for, for a minute.
                answer[7] = 1;
                answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 192, 0, 2, 7]);
            }
            if other.recv().is_err() {
                return;
            }
            socket.send_to(&answer, from).unwrap();
        }
    }

    #[test]
    fn nxdomain_from_fast_server_does_not_hide_slow_answer() {
        const NO_SUCH_NAME: u8 = 3;
        assert_eq!(lookup_with_failing_server(NO_SUCH_NAME), ["192.0.2.7"]);
    }

    #[test]
    fn failure_of_fast_server_does_not_hide_slow_answer() {
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

    /// What is found where the first server answers with this code, and the second one later.
    fn lookup_with_failing_server(code: u8) -> Vec<String> {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("resolv.conf");
        let hosts = ["127.0.0.1", "127.0.0.2"];
        let text = format!("nameserver {}\nnameserver {}\n", hosts[0], hosts[1]);
        fs::write(&file, text).unwrap();
        let (config, options) = configure(&file).unwrap();
        let sockets = hosts.map(|host| UdpSocket::bind((host, 0)).unwrap());
        let servers = zip(config.name_servers(), &sockets).map(|(server, socket)| {
            let mut server = server.clone();
            // The file has no ports.
            server.connections.truncate(1);
            server.connections[0].port = socket.local_addr().unwrap().port();
            server
        });
        let config = ResolverConfig::from_parts(None, Vec::new(), servers.collect());
        let [first, second] = sockets;
        let (answered, other) = channel();
        // They end with the program.
        thread::spawn(move || answer_with_code(&first, code, &answered));
        thread::spawn(move || answer_after(&second, &other));

        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.enable_all().build().unwrap();
        let found = runtime.block_on(async {
            let servers = NameServers::new(&config, &options).unwrap();
            let name = record_name("cache.floe.test.").unwrap();
            servers.lookup(name).await.unwrap()
        });
        found.iter().map(|address| address.to_string()).collect()
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
