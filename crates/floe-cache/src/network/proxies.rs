//! Proxies, from the environment variables that curl reads, and so Nix.

use floe_transfer::{Error, redact_credentials};
use hyper_util::client::proxy::matcher::Matcher;
use reqwest::{ClientBuilder, NoProxy, Proxy, Url};

use crate::error::CacheError;

/// The proxies of requests. The default uses none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Proxies {
    /// The proxy for `http://` URLs.
    pub http: Option<ProxyVar>,
    /// The proxy for `https://` URLs.
    pub https: Option<ProxyVar>,
    /// The hosts, domains and networks that need no proxy, separated by commas or blanks. `*` means
    /// all.
    pub exceptions: Option<ProxyVar>,
}

/// A variable or option that is set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxyVar {
    /// The name of the variable.
    pub name: &'static str,
    /// Its value; not empty.
    pub value: String,
}

impl ProxyVar {
    /// Returns the value without credentials.
    pub fn redacted(&self) -> String {
        redact_credentials(&self.value)
    }
}

impl Proxies {
    /// Reads the variables in curl's order: lower case before upper case, and the variable of one
    /// scheme before `all_proxy`. An empty variable counts as unset.
    pub fn from_env(value: impl Fn(&str) -> Option<String>) -> Proxies {
        let first = |names: &[&'static str]| {
            names.iter().find_map(|name| {
                let value = value(name).filter(|value| !value.is_empty())?;
                Some(ProxyVar { name, value })
            })
        };
        Proxies {
            // Not HTTP_PROXY: a CGI server sets it to the header field `Proxy` of its client.
            http: first(&["http_proxy", "all_proxy", "ALL_PROXY"]),
            https: first(&["https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"]),
            exceptions: first(&["no_proxy", "NO_PROXY"]),
        }
    }

    /// Returns the proxy of a URL, or `None` if its host is an exception.
    pub fn for_url(&self, url: &Url) -> Option<&ProxyVar> {
        let proxy = match url.scheme() {
            "https" => self.https.as_ref(),
            _ => self.http.as_ref(),
        };
        let proxy = proxy.filter(|_| !self.exempts_all_hosts())?;
        // reqwest has the same rules, because it uses the same matcher.
        let matcher = Matcher::builder()
            .all(proxy.value.clone())
            .no(self.exceptions())
            .build();
        matcher.intercept(&url.as_str().parse().ok()?)?;
        Some(proxy)
    }

    /// Returns the exceptions with commas. Blanks separate them too, as in curl before 8.9, which
    /// Nix may be linked with. Later versions ignore the text after the first blank, which no user
    /// wants.
    fn exceptions(&self) -> String {
        let variable = self.exceptions.as_ref();
        variable.map_or_else(String::new, |variable| {
            variable.value.replace([' ', '\t'], ",")
        })
    }

    /// Whether no host needs a proxy. reqwest applies `*` only to names, not to addresses.
    fn exempts_all_hosts(&self) -> bool {
        let exceptions = self.exceptions();
        exceptions.split(',').any(|exception| exception == "*")
    }

    /// Makes a client use these proxies and no others.
    ///
    /// Errors: [`CacheError::Proxy`].
    pub fn configure(&self, client: ClientBuilder) -> Result<ClientBuilder, Error> {
        let mut client = client.no_proxy();
        if self.exempts_all_hosts() {
            return Ok(client);
        }
        type Make = fn(&str) -> reqwest::Result<Proxy>;
        let http: (_, Make) = (&self.http, |url| Proxy::http(url));
        let https: (_, Make) = (&self.https, |url| Proxy::https(url));
        for (variable, make) in [http, https] {
            let Some(variable) = variable else { continue };
            // The error of reqwest may contain the password, and reqwest accepts every scheme.
            let proxy = make(&variable.value).ok();
            let proxy = proxy.filter(|_| has_known_scheme(&variable.value));
            let proxy = proxy.ok_or_else(|| CacheError::Proxy {
                variable: variable.name,
                value: variable.redacted(),
            })?;
            client = client.proxy(proxy.no_proxy(NoProxy::from_string(&self.exceptions())));
        }
        Ok(client)
    }
}

/// Whether floe supports the scheme of a proxy. As in curl, a host without a scheme means HTTP.
fn has_known_scheme(value: &str) -> bool {
    let scheme = value.split_once("://").map(|(scheme, _)| scheme);
    scheme.is_none_or(|scheme| SCHEMES.contains(&scheme.to_ascii_lowercase().as_str()))
}

/// The schemes of reqwest with its feature `socks`.
const SCHEMES: [&str; 6] = ["http", "https", "socks4", "socks4a", "socks5", "socks5h"];

#[cfg(test)]
mod tests {
    use reqwest::Client;

    use super::*;

    fn named(variables: &[(&str, &str)]) -> [Option<(&'static str, String)>; 3] {
        let value = |name: &str| {
            let found = variables.iter().find(|(own, _)| *own == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        let Proxies {
            http,
            https,
            exceptions,
        } = Proxies::from_env(value);
        [http, https, exceptions].map(|found| found.map(|found| (found.name, found.value)))
    }

    #[test]
    fn proxy_variable_of_scheme_overrides_all_proxy() {
        let some = |name, value: &str| Some((name, value.to_owned()));
        assert_eq!(named(&[]), [None, None, None]);
        let all = [("ALL_PROXY", "a"), ("https_proxy", "b"), ("NO_PROXY", "c")];
        let expected = [
            some("ALL_PROXY", "a"),
            some("https_proxy", "b"),
            some("NO_PROXY", "c"),
        ];
        assert_eq!(named(&all), expected);
        let both = [("http_proxy", "a"), ("HTTP_PROXY", "b")];
        assert_eq!(named(&both)[0], some("http_proxy", "a"));
        // As in curl, an empty variable counts as unset.
        let empty = [
            ("http_proxy", ""),
            ("all_proxy", ""),
            ("ALL_PROXY", "a"),
            ("https_proxy", ""),
            ("HTTPS_PROXY", "b"),
            ("no_proxy", ""),
            ("NO_PROXY", "c"),
        ];
        let expected = [
            some("ALL_PROXY", "a"),
            some("HTTPS_PROXY", "b"),
            some("NO_PROXY", "c"),
        ];
        assert_eq!(named(&empty), expected);
        assert_eq!(named(&[("http_proxy", "")])[0], None);
        assert_eq!(named(&[("HTTP_PROXY", "a")])[0], None);
        let by_a_client = [("HTTP_PROXY", "a"), ("ALL_PROXY", "b")];
        assert_eq!(named(&by_a_client)[0], some("ALL_PROXY", "b"));
    }

    #[test]
    fn no_proxy_hosts_have_no_proxy() {
        let proxies = Proxies::from_env(|name| match name {
            "http_proxy" => Some("http://proxy.example.net:3128".to_owned()),
            "no_proxy" => Some("example.org, .example.com 10.0.0.0/8\t192.0.2.1,fd00::/8,".into()),
            _ => None,
        });
        let has_proxy = |host: &str| {
            let url = Url::parse(&format!("http://{host}:8080/x")).unwrap();
            proxies.for_url(&url).is_some()
        };
        for direct in [
            "example.org",
            "EXAMPLE.org",
            "a.example.org",
            "example.com",
            "a.example.com",
            "10.1.2.3",
            "192.0.2.1",
            "[fd12::1]",
        ] {
            assert!(!has_proxy(direct), "{direct}");
        }
        for other in [
            "anexample.org",
            "org",
            "example.org.net",
            "11.1.2.3",
            "192.0.2.2",
            "[fe80::1]",
        ] {
            assert!(has_proxy(other), "{other}");
        }
        assert!(
            proxies
                .for_url(&Url::parse("https://other.example/").unwrap())
                .is_none()
        );
        let all = Proxies {
            exceptions: Some(ProxyVar {
                name: "no_proxy",
                value: "*".into(),
            }),
            ..proxies
        };
        for host in ["other.example", "11.1.2.3", "[fe80::1]"] {
            let url = Url::parse(&format!("http://{host}/")).unwrap();
            assert!(all.for_url(&url).is_none(), "{host}");
        }
    }

    #[test]
    fn invalid_proxy_error_hides_password() {
        let proxies = Proxies::from_env(|name| {
            (name == "http_proxy").then(|| "gopher://me:secret@example.org".to_owned())
        });
        let error = proxies
            .configure(Client::builder())
            .err()
            .unwrap()
            .to_string();
        assert!(
            error.contains("http_proxy") && error.contains("example.org"),
            "{error}"
        );
        assert!(!error.contains("secret"), "{error}");
    }
}
