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

use hickory_resolver::config::LookupIpStrategy;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::op::Query;
use hickory_resolver::proto::rr::{Name as RecordName, RecordType};
use hickory_resolver::system_conf::parse_resolv_conf;
use hickory_resolver::{Hosts, TokioResolver};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

/// Whether the system's resolver is out of reach of this program.
pub(super) const IS_NEEDED: bool = cfg!(all(target_env = "gnu", target_feature = "crt-static"));

/// Asks name servers. Its files are read at the first question.
#[derive(Debug, Default)]
pub(super) struct Names(Arc<OnceLock<TokioResolver>>);

impl Resolve for Names {
    fn resolve(&self, name: Name) -> Resolving {
        let resolver = self.0.clone();
        Box::pin(async move {
            // What is named there nobody else is asked for, not even for its other family.
            let named = in_hosts(&Hosts::from_system().unwrap_or_default(), name.as_str());
            if !named.is_empty() {
                return Ok(Box::new(named.into_iter()) as Addrs);
            }
            let resolver = match resolver.get() {
                Some(resolver) => resolver,
                // Where two come first at once, both read the files, and one is kept.
                None => {
                    let made = make(Path::new(RESOLV_CONF))?;
                    resolver.get_or_init(|| made)
                }
            };
            let found = resolver.lookup_ip(name.as_str()).await?;
            let addresses: Vec<SocketAddr> = found.iter().map(|ip| (ip, 0).into()).collect();
            Ok(Box::new(addresses.into_iter()) as Addrs)
        })
    }
}

/// The addresses that a file of hosts has for a name.
fn in_hosts(hosts: &Hosts, name: &str) -> Vec<SocketAddr> {
    let Ok(name) = RecordName::from_str_relaxed(name) else {
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

type Failure = Box<dyn StdError + Send + Sync>;

fn make(resolv_conf: &Path) -> Result<TokioResolver, Failure> {
    let told = |error: &dyn StdError| -> Failure {
        format!("reading {}: {error}", resolv_conf.display()).into()
    };
    let text = read(resolv_conf).map_err(|error| told(&error))?;
    let (config, options) = parse_resolv_conf(text).map_err(|error| told(&error))?;
    let mut builder = TokioResolver::builder_with_config(config, TokioRuntimeProvider::default())
        .with_options(options);
    // The connection is tried with both families, the second soon after the first.
    builder.options_mut().ip_strategy = LookupIpStrategy::Ipv6AndIpv4;
    Ok(builder.build()?)
}

/// The file, with the server that it implies where it names none: the one on this machine, as
/// resolv.conf(5) says. Nobody else's servers are asked unless somebody has named them.
fn read(resolv_conf: &Path) -> io::Result<String> {
    let mut text = match fs::read(resolv_conf) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
        Err(error) => return Err(error),
    };
    let names_a_server = |line: &str| line.split_whitespace().next() == Some("nameserver");
    if !text.lines().any(names_a_server) {
        text.push_str("\nnameserver 127.0.0.1\n");
    }
    Ok(text)
}

const RESOLV_CONF: &str = "/etc/resolv.conf";

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    /// The name servers that are asked under a file, or without any.
    fn servers(text: Option<&str>) -> Vec<IpAddr> {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("resolv.conf");
        if let Some(text) = text {
            fs::write(&file, text).unwrap();
        }
        let (config, _) = parse_resolv_conf(read(&file).unwrap()).unwrap();
        config
            .name_servers()
            .iter()
            .map(|server| server.ip)
            .collect()
    }

    #[test]
    fn nobody_is_asked_whom_the_machine_does_not_name() {
        let own: Vec<IpAddr> = vec!["127.0.0.1".parse().unwrap()];
        assert_eq!(servers(None), own);
        assert_eq!(servers(Some("search example.org")), own);
        assert_eq!(servers(Some("# nameserver 192.0.2.1\n")), own);
        let named: Vec<IpAddr> = vec!["192.0.2.1".parse().unwrap(), "2001:db8::1".parse().unwrap()];
        let text = "options ndots:2\nnameserver 192.0.2.1\n nameserver\t2001:db8::1 # second\n";
        assert_eq!(servers(Some(text)), named);
    }

    #[test]
    fn a_name_in_the_file_of_hosts_has_the_addresses_that_stand_there() {
        let mut hosts = Hosts::default();
        let text = "127.0.0.1 one.example two.example # three.example\n::1 two.example\n";
        hosts.read_hosts_conf(text.as_bytes()).unwrap();
        let found = |name| {
            let addresses = in_hosts(&hosts, name).into_iter();
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
    fn a_file_that_cannot_be_read_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let error = make(directory.path()).unwrap_err().to_string();
        assert!(
            error.contains(&directory.path().display().to_string()),
            "{error}"
        );
    }
}
