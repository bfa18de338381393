//! User names and passwords, for the hosts that they are meant for and no others.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use floe_format::{Netrc, base64};
use floe_transfer::Error;
use floe_transfer::url::percent_decode;
use reqwest::header::{AUTHORIZATION, HeaderValue};
use reqwest::{Client, RequestBuilder, Url};

use crate::options::NetworkOptions;

/// The files of logins that are there and cannot be used, and why. Requests are made without
/// them, so whoever can warn does so before the first one, which may need them.
pub fn unusable_netrc_files(options: &NetworkOptions) -> Vec<Error> {
    Credentials::read(&options.netrc).1
}

/// What the netrc files say.
#[derive(Debug, Default)]
pub(crate) struct Credentials(Vec<Netrc>);

impl Credentials {
    /// Reads files, passing over those that are not there. A file that cannot be used is gone
    /// without, as by curl: most requests need no login, and the errors say which those are.
    pub(crate) fn read(files: &[PathBuf]) -> (Credentials, Vec<Error>) {
        let (mut credentials, mut errors) = (Credentials::default(), Vec::new());
        for file in files {
            match read_netrc(file) {
                Ok(netrc) => credentials.0.extend(netrc),
                Err(source) => errors.push(Error::File {
                    action: "reading the logins in",
                    path: file.clone(),
                    source,
                }),
            }
        }
        (credentials, errors)
    }

    /// A request to a URL, with what its host is to be told.
    pub(super) fn authenticated_request(&self, client: &Client, url: &Url) -> RequestBuilder {
        let request = self.request_without_credentials(client, url);
        match self.authorization(url) {
            Some(value) => request.header(AUTHORIZATION, value),
            None => request,
        }
    }

    /// The same without.
    pub(super) fn request_without_credentials(&self, client: &Client, url: &Url) -> RequestBuilder {
        let mut url = url.clone();
        // The client would send these by itself, beside what is said here. Both fail for URLs that
        // cannot have them.
        let _: Result<(), ()> = url.set_username("");
        let _: Result<(), ()> = url.set_password(None);
        client.get(url)
    }

    /// What stands in the URL counts before the files; a user alone gets the password from them.
    fn authorization(&self, url: &Url) -> Option<HeaderValue> {
        let user = decoded(url.username());
        if let Some(password) = url.password() {
            return Some(basic_auth(&user, &decoded(password)));
        }
        // An IPv6 address stands in brackets in a URL, and without them in a file.
        let host = url.host_str().unwrap_or_default();
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let named = |netrc: &'_ Netrc| {
            let login = netrc.credentials(host, &user)?;
            let user = if user.is_empty() { &login.user } else { &user };
            Some(basic_auth(user, &login.password))
        };
        let found = self.0.iter().find_map(named);
        found.or_else(|| (!user.is_empty()).then(|| basic_auth(&user, b"")))
    }
}

/// A part of a URL as it was meant, or as it stands where it was not written as one has to.
fn decoded(text: &str) -> Vec<u8> {
    percent_decode(text).unwrap_or_else(|_| text.as_bytes().to_vec())
}

/// The scheme `Basic` of RFC 7617, in the bytes that somebody has written: it names no encoding.
fn basic_auth(user: &[u8], password: &[u8]) -> HeaderValue {
    let text = base64::encode(&[user, b":", password].concat());
    let value = HeaderValue::from_str(&format!("Basic {text}"));
    let mut value = value.expect("Base64 has no letter that a header may not have");
    value.set_sensitive(true);
    value
}

/// `None`: it is not there.
fn read_netrc(file: &Path) -> io::Result<Option<Netrc>> {
    match fs::read(file) {
        Ok(text) => Netrc::parse(&text).map(Some).map_err(io::Error::other),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_match_host_and_user_of_url() {
        let text = b"machine ::1 login six password p6\n\
                     machine a login u password pu\nmachine a login v password pv\n\
                     machine b password any\n";
        let credentials = Credentials(vec![Netrc::parse(text).unwrap()]);
        let sent = |url: &str| {
            let value = credentials.authorization(&Url::parse(url).unwrap())?;
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
