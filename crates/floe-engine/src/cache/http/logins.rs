//! User names and passwords, for the hosts that they are meant for and no others.

use std::fs;
use std::io;
use std::path::PathBuf;

use floe_format::Netrc;
use reqwest::{RequestBuilder, Url};

use crate::error::Error;

/// What the netrc files say.
#[derive(Debug, Default)]
pub(super) struct Logins(Vec<Netrc>);

impl Logins {
    /// Reads files, passing over those that are not there.
    pub(super) fn read(files: &[PathBuf]) -> Result<Logins, Error> {
        let mut logins = Logins::default();
        for file in files {
            let text = match fs::read(file) {
                Ok(text) => text,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(source) => return Err(unreadable(file, source)),
            };
            let parsed = String::from_utf8(text)
                .map_err(|_| "it is not UTF-8".to_owned())
                .and_then(|text| Netrc::parse(&text).map_err(|error| error.to_string()));
            let invalid = |reason| unreadable(file, io::Error::other(reason));
            logins.0.push(parsed.map_err(invalid)?);
        }
        Ok(logins)
    }

    /// Adds what belongs to the request's own host. What stands in the URL counts before that, and
    /// the client sends it by itself.
    pub(super) fn add_to(&self, request: RequestBuilder, url: &Url) -> RequestBuilder {
        let has_own = !url.username().is_empty() || url.password().is_some();
        let host = url.host_str().filter(|_| !has_own);
        let login = host.and_then(|host| self.0.iter().find_map(|netrc| netrc.login(host)));
        match login {
            Some(login) => request.basic_auth(&login.user, Some(&login.password)),
            None => request,
        }
    }
}

fn unreadable(file: &std::path::Path, source: io::Error) -> Error {
    Error::File {
        action: "reading the logins in",
        path: file.to_path_buf(),
        source,
    }
}
