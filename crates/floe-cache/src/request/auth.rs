//! User names and passwords: each host gets its own and no others.

use floe_format::{Netrc, base64};
use floe_transfer::url::percent_decode;
use reqwest::header::{AUTHORIZATION, HeaderValue};
use reqwest::{Client, Method, RequestBuilder, Url};

/// Adds the credentials for the URL's host to a request.
pub(crate) fn add_credentials(
    request: RequestBuilder,
    netrc: &[Netrc],
    url: &Url,
) -> RequestBuilder {
    match authorization(netrc, url) {
        Some(value) => request.header(AUTHORIZATION, value),
        None => request,
    }
}

/// Makes a request without credentials.
pub(crate) fn without_credentials(client: &Client, method: Method, url: &Url) -> RequestBuilder {
    let mut url = url.clone();
    // reqwest would send the credentials of the URL itself. Both calls fail for URLs that cannot
    // have credentials.
    let _: Result<(), ()> = url.set_username("");
    let _: Result<(), ()> = url.set_password(None);
    client.request(method, url)
}

/// Returns the header for a URL. Credentials in the URL win over the files; a user name alone
/// gets its password from the files.
fn authorization(netrc: &[Netrc], url: &Url) -> Option<HeaderValue> {
    let user = decoded(url.username());
    if let Some(password) = url.password() {
        return Some(basic_auth(&user, &decoded(password)));
    }
    // An IPv6 address has brackets in a URL, and none in a netrc file.
    let host = url.host_str().unwrap_or_default();
    let host = host.trim_matches(['[', ']']);
    let named = |netrc: &'_ Netrc| {
        let login = netrc.credentials(host, &user)?;
        let user = if user.is_empty() { &login.user } else { &user };
        Some(basic_auth(user, &login.password))
    };
    let found = netrc.iter().find_map(named);
    found.or_else(|| (!user.is_empty()).then(|| basic_auth(&user, b"")))
}

/// Decodes a part of a URL, or returns it as it is if it is not percent-encoded correctly.
fn decoded(text: &str) -> Vec<u8> {
    percent_decode(text).unwrap_or_else(|_| text.as_bytes().to_vec())
}

/// The scheme `Basic` of RFC 7617, which names no character encoding.
fn basic_auth(user: &[u8], password: &[u8]) -> HeaderValue {
    let text = base64::encode(&[user, b":", password].concat());
    let value = HeaderValue::from_str(&format!("Basic {text}"));
    let mut value = value.expect("Base64 contains only characters that a header may contain");
    value.set_sensitive(true);
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_match_host_and_user_of_url() {
        let text = b"machine ::1 login six password p6\n\
                     machine a login u password pu\nmachine a login v password pv\n\
                     machine b password any\n";
        let netrc = [Netrc::parse(text).unwrap()];
        let sent = |url: &str| {
            let value = authorization(&netrc, &Url::parse(url).unwrap())?;
            let text = value.to_str().unwrap().strip_prefix("Basic ").unwrap();
            Some(String::from_utf8(base64::decode(text).unwrap()).unwrap())
        };
        for (url, wanted) in [
            ("http://[::1]:80/x", Some("six:p6")),
            ("http://a/", Some("u:pu")),
            ("http://v@a/", Some("v:pv")),
            ("http://v:own@a/", Some("v:own")),
            ("http://w@a/", Some("w:")),
            ("http://w%40x@b/", Some("w@x:any")),
            ("http://:p%20q@c/", Some(":p q")),
            ("http://c/", None),
        ] {
            assert_eq!(sent(url).as_deref(), wanted, "{url}");
        }
    }
}
