//! The file `netrc`: user names and passwords for hosts, as curl and Nix read it.
//!
//! Tokens apart by white space: `machine HOST`, `default`, `login NAME`, `password WORD`,
//! `account WORD`, and `macdef NAME` with a text up to an empty line. Keywords may be written in
//! capitals; a word that is none, such as a `port` and its number, is passed over. A word in quotes
//! may hold white space and `\"`, `\\`, `\n`, `\r`, `\t`. A `#` where a line begins, or where a
//! keyword could stand, makes the rest of the line a comment; in a password it is a character.
//! Bytes are taken as they are: no encoding is assumed.
//! Source: curl's `docs/internals` and `lib/netrc.c`, and ftp(1).

use std::fmt;

/// Who somebody is for a host, in the bytes of the file.
#[derive(Clone, PartialEq, Eq)]
pub struct NetrcCredentials {
    /// The user name; empty where only a password was given.
    pub user: Vec<u8>,
    /// The password.
    pub password: Vec<u8>,
}

impl fmt::Debug for NetrcCredentials {
    /// Without the password, so that no message can hold it by mistake.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NetrcCredentials")
            .field("user", &String::from_utf8_lossy(&self.user))
            .finish_non_exhaustive()
    }
}

/// Why a text is no netrc. No error repeats a word of the text, which may be a password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NetrcError {
    /// It is longer than [`NETRC_LEN_MAX`].
    #[error("it is longer than {NETRC_LEN_MAX} bytes")]
    TooLong,
    /// A keyword lacks the word that belongs to it.
    #[error("line {line}: nothing follows {keyword}")]
    Incomplete {
        /// The line, counted from 1.
        line: usize,
        /// The keyword.
        keyword: &'static str,
    },
    /// A quotation does not end on its line.
    #[error("line {line}: a quotation does not end")]
    OpenQuotation {
        /// The line, counted from 1.
        line: usize,
    },
}

/// The entries of a netrc, in its order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Netrc {
    entries: Vec<Entry>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    /// `None`: any host.
    host: Option<Vec<u8>>,
    credentials: NetrcCredentials,
}

impl Netrc {
    /// Parses the file. What stands before the first `machine` is for no host.
    pub fn parse(text: &[u8]) -> Result<Netrc, NetrcError> {
        if text.len() > NETRC_LEN_MAX {
            return Err(NetrcError::TooLong);
        }
        let mut netrc = Netrc::default();
        let mut tokens = Tokens::new(text);
        while let Some(word) = tokens.keyword()? {
            match word.to_ascii_lowercase().as_slice() {
                b"machine" => {
                    let host = tokens.value_of("machine")?;
                    netrc.begin_entry(Some(host));
                }
                b"default" => netrc.begin_entry(None),
                b"login" => {
                    let user = tokens.value_of("login")?;
                    netrc.update_entry(|entry| entry.user = user);
                }
                b"password" => {
                    let password = tokens.value_of("password")?;
                    netrc.update_entry(|entry| entry.password = password);
                }
                b"account" => {
                    tokens.value_of("account")?;
                }
                b"macdef" => {
                    tokens.value_of("macdef")?;
                    tokens.skip_macro();
                }
                _ => {}
            }
        }
        Ok(netrc)
    }

    /// What the first entry says that is for a host, and for a user if that is not empty. One that
    /// names no user is for all.
    pub fn credentials(&self, host: &str, user: &[u8]) -> Option<&NetrcCredentials> {
        let is_for = |entry: &&Entry| match &entry.host {
            Some(name) => name.eq_ignore_ascii_case(host.as_bytes()),
            None => true,
        };
        let mut found = self
            .entries
            .iter()
            .filter(is_for)
            .map(|entry| &entry.credentials);
        found.find(|login| user.is_empty() || login.user.is_empty() || login.user == user)
    }

    fn begin_entry(&mut self, host: Option<Vec<u8>>) {
        let (user, password) = (Vec::new(), Vec::new());
        let credentials = NetrcCredentials { user, password };
        self.entries.push(Entry { host, credentials });
    }

    fn update_entry(&mut self, update: impl FnOnce(&mut NetrcCredentials)) {
        if let Some(entry) = self.entries.last_mut() {
            update(&mut entry.credentials);
        }
    }
}

/// The tokens of a text.
struct Tokens<'a> {
    rest: &'a [u8],
    /// The line of the word that was read last, counted from 1.
    line: usize,
    is_line_start: bool,
}

impl<'a> Tokens<'a> {
    fn new(text: &'a [u8]) -> Tokens<'a> {
        Tokens {
            rest: text,
            line: 1,
            is_line_start: true,
        }
    }

    /// The next word where a keyword has its place; comments are no words.
    fn keyword(&mut self) -> Result<Option<Vec<u8>>, NetrcError> {
        loop {
            self.skip_white_space();
            match self.rest.first() {
                Some(b'#') => self.skip_line(),
                _ => return self.next(),
            }
        }
    }

    /// The next word.
    fn next(&mut self) -> Result<Option<Vec<u8>>, NetrcError> {
        self.skip_white_space();
        while self.is_line_start && self.rest.first() == Some(&b'#') {
            self.skip_line();
            self.skip_white_space();
        }
        self.is_line_start = false;
        match self.rest.first() {
            None => Ok(None),
            Some(b'"') => self.quoted().map(Some),
            Some(_) => {
                let end = self.rest.iter().position(is_white_space);
                let (word, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
                self.rest = rest;
                Ok(Some(word.to_owned()))
            }
        }
    }

    fn value_of(&mut self, keyword: &'static str) -> Result<Vec<u8>, NetrcError> {
        let line = self.line;
        self.next()?.ok_or(NetrcError::Incomplete { line, keyword })
    }

    fn skip_white_space(&mut self) {
        while let [first, rest @ ..] = self.rest
            && is_white_space(first)
        {
            if *first == b'\n' {
                self.line += 1;
                self.is_line_start = true;
            }
            self.rest = rest;
        }
    }

    fn quoted(&mut self) -> Result<Vec<u8>, NetrcError> {
        let open = NetrcError::OpenQuotation { line: self.line };
        let mut word = Vec::new();
        let mut bytes = self.rest.iter().enumerate().skip(1);
        while let Some((at, byte)) = bytes.next() {
            match byte {
                b'"' => {
                    self.rest = &self.rest[at + 1..];
                    return Ok(word);
                }
                b'\n' => return Err(open),
                b'\\' => match bytes.next() {
                    Some((_, b'n')) => word.push(b'\n'),
                    Some((_, b'r')) => word.push(b'\r'),
                    Some((_, b't')) => word.push(b'\t'),
                    Some((_, other)) => word.push(*other),
                    None => return Err(open),
                },
                other => word.push(*other),
            }
        }
        Err(open)
    }

    /// Leaves the end of the line, which counts it.
    fn skip_line(&mut self) {
        let end = self.rest.iter().position(|byte| *byte == b'\n');
        self.rest = &self.rest[end.unwrap_or(self.rest.len())..];
    }

    /// A macro ends at the first empty line.
    fn skip_macro(&mut self) {
        self.skip_line();
        while let Some(rest) = self.rest.strip_prefix(b"\n") {
            self.line += 1;
            self.is_line_start = true;
            self.rest = rest;
            let line = rest.split(|byte| *byte == b'\n').next();
            if line.unwrap_or_default().trim_ascii().is_empty() {
                return;
            }
            self.skip_line();
        }
    }
}

/// All bytes up to the space are, as for curl.
fn is_white_space(byte: &u8) -> bool {
    *byte <= b' '
}

/// A thousand times any real one, in bytes.
pub const NETRC_LEN_MAX: usize = 1024 * 1024;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn login(text: &str, host: &str) -> Option<(String, String)> {
        let netrc = Netrc::parse(text.as_bytes()).unwrap();
        let login = netrc.credentials(host, b"")?;
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        Some((text(&login.user), text(&login.password)))
    }

    fn of(user: &str, password: &str) -> Option<(String, String)> {
        Some((user.into(), password.into()))
    }

    #[test]
    fn the_first_entry_for_a_host_counts_and_default_is_for_all() {
        let text = "machine a.org login u password p\nmachine a.org login v password q\n\
                    default login d password e\nmachine b.org login never password seen\n";
        assert_eq!(login(text, "a.org"), of("u", "p"));
        assert_eq!(login(text, "A.ORG"), of("u", "p"));
        assert_eq!(login(text, "b.org"), of("d", "e"));
        assert_eq!(login("machine a.org password p", "a.org"), of("", "p"));
        assert_eq!(login("machine a.org login u", "b.org"), None);
        assert_eq!(login("", "a.org"), None);
        let netrc = Netrc::parse(text.as_bytes()).unwrap();
        let password = |user: &[u8]| Some(&*netrc.credentials("a.org", user)?.password);
        assert_eq!(password(b"v"), Some(&b"q"[..]));
        assert_eq!(password(b"d"), Some(&b"e"[..]));
        assert_eq!(password(b"w"), None);
    }

    #[test]
    fn comments_macros_accounts_and_quotations_are_understood() {
        let text = "# machine no login x\nmachine a\n\tlogin \"us er\"\n  # two\n\
                    password \"p\\\"\\\\ #\\n\"\naccount x\n\
                    macdef init\nlogin not\n\npassword z#z\n";
        assert_eq!(login(text, "a"), of("us er", "z#z"));
        let text = "machine a login u password \"p\\\"\\\\ #\\n\"";
        assert_eq!(login(text, "a"), of("u", "p\"\\ #\n"));
    }

    #[test]
    fn what_curl_passes_over_is_passed_over() {
        for text in [
            "machine a login u password p # comment",
            "machine a # comment\nlogin u password p",
            "machine a # login v password q\nlogin u password p",
            "MACHINE a LOGIN u PassWord p",
            "machine a port 80 login u password p",
            "machine a login u password p port 80 oops",
            "login v password q port machine a login u password p",
        ] {
            assert_eq!(login(text, "a"), of("u", "p"), "{text}");
        }
        // Where a word is awaited, this is one.
        let text = "machine a login #u password #p # no more";
        assert_eq!(login(text, "a"), of("#u", "#p"));
        let text = b"# \xff\nmachine a login \xfc password \xff\xfe\n";
        let netrc = Netrc::parse(text).unwrap();
        let found = netrc.credentials("a", b"").unwrap();
        assert_eq!(
            (&*found.user, &*found.password),
            (&b"\xfc"[..], &b"\xff\xfe"[..])
        );
    }

    #[test]
    fn an_error_names_the_line_and_no_word_of_the_file() {
        for (text, wanted) in [
            (
                "machine a\nlogin secret password",
                "line 2: nothing follows password",
            ),
            (
                "machine a\n\nlogin u password \"secret",
                "line 3: a quotation",
            ),
        ] {
            let message = Netrc::parse(text.as_bytes()).unwrap_err().to_string();
            assert!(message.starts_with(wanted), "{text:?}: {message}");
            assert!(!message.contains("secret"), "{message}");
        }
        let netrc = Netrc::parse(b"machine a login u password secret").unwrap();
        assert!(!format!("{netrc:?}").contains("secret"));
    }

    proptest! {
        #[test]
        fn what_is_quoted_is_read_back(host in "[a-z.]{1,9}", user in "\\PC*", password in ".*") {
            let quote = |word: &str| {
                let word = word.replace('\\', "\\\\").replace('"', "\\\"");
                format!("\"{}\"", word.replace('\n', "\\n"))
            };
            let (a, b) = (quote(&user), quote(&password));
            let text = format!("machine {host} login {a} password {b}\n");
            prop_assert_eq!(login(&text, &host), of(&user, &password));
        }

        #[test]
        fn any_text_is_read_or_refused(text in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = Netrc::parse(&text);
        }
    }
}
