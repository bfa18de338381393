//! User names and passwords, for the hosts that they are meant for and no others.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use floe_format::{Netrc, base64};
use reqwest::header::{AUTHORIZATION, HeaderValue};
use reqwest::{RequestBuilder, Url};

use crate::error::Error;

/// What the netrc files say.
#[derive(Debug, Default)]
pub(crate) struct Logins(Vec<Netrc>);

impl Logins {
    /// Reads files, passing over those that are not there. A file that cannot be used is gone
    /// without, as by curl: most requests need no login, and the errors say which those are.
    pub(crate) fn read(files: &[PathBuf]) -> (Logins, Vec<Error>) {
        let (mut logins, mut errors) = (Logins::default(), Vec::new());
        for file in files {
            match read(file) {
                Ok(netrc) => logins.0.extend(netrc),
                Err(source) => errors.push(Error::File {
                    action: "reading the logins in",
                    path: file.clone(),
                    source,
                }),
            }
        }
        (logins, errors)
    }

    /// Adds what belongs to the request's own host. What stands in the URL counts before that, and
    /// the client sends it by itself.
    pub(super) fn add_to(&self, request: RequestBuilder, url: &Url) -> RequestBuilder {
        let has_own = !url.username().is_empty() || url.password().is_some();
        let host = url.host_str().filter(|_| !has_own);
        let login = host.and_then(|host| self.0.iter().find_map(|netrc| netrc.login(host)));
        match login {
            Some(login) => request.header(AUTHORIZATION, basic(&login.user, &login.password)),
            None => request,
        }
    }
}

/// The scheme `Basic` of RFC 7617, in the bytes that somebody has written: it names no encoding.
fn basic(user: &[u8], password: &[u8]) -> HeaderValue {
    let text = base64::encode(&[user, b":", password].concat());
    let value = HeaderValue::from_str(&format!("Basic {text}"));
    let mut value = value.expect("Base64 has no letter that a header may not have");
    value.set_sensitive(true);
    value
}

/// `None`: it is not there.
fn read(file: &Path) -> io::Result<Option<Netrc>> {
    match fs::read(file) {
        Ok(text) => Netrc::parse(&text).map(Some).map_err(io::Error::other),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
