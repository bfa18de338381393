//! The file `netrc`: user names and passwords for hosts, as curl and Nix read it.
//!
//! The file consists of words separated by white space: `machine HOST`, `default`, `login NAME`,
//! `password WORD`, `account WORD`, and `macdef NAME` with a macro up to an empty line. Keywords
//! may be in upper case. Unknown words, such as `port` and its number, are skipped.
//!
//! A word in double quotes may contain white space and the escapes `\"`, `\\`, `\n`, `\r`, `\t`. A
//! `#` at the start of a line, or at the position of a keyword, starts a comment. In a password it
//! is an ordinary character. The file may have any encoding.
//!
//! Source: curl's `docs/internals` and `lib/netrc.c`, and ftp(1).

use std::fmt;

/// A user name and a password in the bytes of the file.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct NetrcCredentials {
    /// The user name. Empty if the entry has none.
    pub user: Vec<u8>,
    /// The password. Empty if the entry has none.
    pub password: Vec<u8>,
}

impl fmt::Debug for NetrcCredentials {
    /// Omits the password, so that no message can reveal it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NetrcCredentials")
            .field("user", &String::from_utf8_lossy(&self.user))
            .finish_non_exhaustive()
    }
}

/// Reason why a text is not a valid netrc. No error contains a word of the text, which may be a
/// password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NetrcError {
    /// The file is longer than [`NETRC_LEN_MAX`].
    #[error("the file is longer than {NETRC_LEN_MAX} bytes")]
    TooLong,
    /// No word follows a keyword that needs one.
    #[error("line {line}: nothing follows {keyword}")]
    Incomplete {
        /// The number of the line, counted from 1.
        line: usize,
        /// The keyword.
        keyword: &'static str,
    },
    /// A quoted word has no closing quote on its line.
    #[error("line {line}: quoted word without a closing quote")]
    OpenQuotation {
        /// The number of the line, counted from 1.
        line: usize,
    },
}

/// A parsed netrc: its entries, in the order of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Netrc {
    entries: Vec<Entry>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    /// The host. `None` for `default`, which matches every host.
    host: Option<Vec<u8>>,
    credentials: NetrcCredentials,
}

impl Netrc {
    /// Parses the file. Words before the first `machine` or `default` have no effect.
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

    /// Returns the credentials of the first entry that matches a host and a user.
    ///
    /// An empty `user` matches every entry. An entry without a user name matches every user.
    pub fn credentials(&self, host: &str, user: &[u8]) -> Option<&NetrcCredentials> {
        let matches = |entry: &&Entry| {
            let found = &entry.credentials.user;
            let is_host = |name: &Vec<u8>| name.eq_ignore_ascii_case(host.as_bytes());
            entry.host.as_ref().is_none_or(is_host)
                && (user.is_empty() || found.is_empty() || found == user)
        };
        self.entries
            .iter()
            .find(matches)
            .map(|entry| &entry.credentials)
    }

    fn begin_entry(&mut self, host: Option<Vec<u8>>) {
        let credentials = NetrcCredentials::default();
        self.entries.push(Entry { host, credentials });
    }

    fn update_entry(&mut self, update: impl FnOnce(&mut NetrcCredentials)) {
        if let Some(entry) = self.entries.last_mut() {
            update(&mut entry.credentials);
        }
    }
}

/// The tokenizer.
struct Tokens<'a> {
    rest: &'a [u8],
    /// The line of the last word, counted from 1.
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

    /// Returns the next word at the position of a keyword, where a comment may start.
    fn keyword(&mut self) -> Result<Option<Vec<u8>>, NetrcError> {
        loop {
            self.skip_white_space();
            match self.rest.first() {
                Some(b'#') => self.skip_line(),
                _ => return self.next(),
            }
        }
    }

    /// Returns the next word.
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

    /// Returns the word after a keyword.
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

    /// Returns the word in double quotes at the start of the rest.
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

    /// Skips the rest of the line but not its newline, which `skip_white_space` counts.
    fn skip_line(&mut self) {
        let end = self.rest.iter().position(|byte| *byte == b'\n');
        self.rest = &self.rest[end.unwrap_or(self.rest.len())..];
    }

    /// Skips a macro, which ends at the first empty line.
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

/// Returns whether a byte separates words. As for curl, all control characters do.
fn is_white_space(byte: &u8) -> bool {
    *byte <= b' '
}

/// Length of the longest file that parses, in bytes. Real files are a thousand times shorter.
pub const NETRC_LEN_MAX: usize = 1024 * 1024;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn credentials(text: &str, host: &str) -> Option<(String, String)> {
        let netrc = Netrc::parse(text.as_bytes()).unwrap();
        let found = netrc.credentials(host, b"")?;
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        Some((text(&found.user), text(&found.password)))
    }

    fn pair(user: &str, password: &str) -> Option<(String, String)> {
        Some((user.into(), password.into()))
    }

    #[test]
    fn first_matching_entry_counts_and_default_matches_all() {
        let text = "machine a.org login u password p\nmachine a.org login v password q\n\
                    default login d password e\nmachine b.org login never password seen\n";
        assert_eq!(credentials(text, "a.org"), pair("u", "p"));
        assert_eq!(credentials(text, "A.ORG"), pair("u", "p"));
        assert_eq!(credentials(text, "b.org"), pair("d", "e"));
        assert_eq!(
            credentials("machine a.org password p", "a.org"),
            pair("", "p")
        );
        assert_eq!(credentials("machine a.org login u", "b.org"), None);
        assert_eq!(credentials("", "a.org"), None);
        let netrc = Netrc::parse(text.as_bytes()).unwrap();
        let password = |user: &[u8]| Some(&*netrc.credentials("a.org", user)?.password);
        assert_eq!(password(b"v"), Some(&b"q"[..]));
        assert_eq!(password(b"d"), Some(&b"e"[..]));
        assert_eq!(password(b"w"), None);
    }

    #[test]
    fn comments_macros_accounts_and_quotes_parse() {
        let text = "# machine no login x\nmachine a\n\tlogin \"us er\"\n  # two\n\
                    password \"p\\\"\\\\ #\\n\"\naccount x\n\
                    macdef init\nlogin not\n\npassword z#z\n";
        assert_eq!(credentials(text, "a"), pair("us er", "z#z"));
        let text = "machine a login u password \"p\\\"\\\\ #\\n\"";
        assert_eq!(credentials(text, "a"), pair("u", "p\"\\ #\n"));
    }

    #[test]
    fn unknown_words_are_skipped_as_by_curl() {
        for text in [
            "machine a login u password p # comment",
            "machine a # comment\nlogin u password p",
            "machine a # login v password q\nlogin u password p",
            "MACHINE a LOGIN u PassWord p",
            "machine a port 80 login u password p",
            "machine a login u password p port 80 oops",
            "login v password q port machine a login u password p",
        ] {
            assert_eq!(credentials(text, "a"), pair("u", "p"), "{text}");
        }
        // After a keyword, a word may start with #.
        let text = "machine a login #u password #p # no more";
        assert_eq!(credentials(text, "a"), pair("#u", "#p"));
        let text = b"# \xff\nmachine a login \xfc password \xff\xfe\n";
        let netrc = Netrc::parse(text).unwrap();
        let found = netrc.credentials("a", b"").unwrap();
        assert_eq!(
            (&*found.user, &*found.password),
            (&b"\xfc"[..], &b"\xff\xfe"[..])
        );
    }

    #[test]
    fn error_has_line_and_no_word_of_file() {
        for (text, wanted) in [
            (
                "machine a\nlogin secret password",
                "line 2: nothing follows password",
            ),
            (
                "machine a\n\nlogin u password \"secret",
                "line 3: quoted word",
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
        fn quoted_words_parse(host in "[a-z.]{1,9}", user in "\\PC*", password in ".*") {
            let quote = |word: &str| {
                let word = word.replace('\\', "\\\\").replace('"', "\\\"");
                format!("\"{}\"", word.replace('\n', "\\n"))
            };
            let (a, b) = (quote(&user), quote(&password));
            let text = format!("machine {host} login {a} password {b}\n");
            prop_assert_eq!(credentials(&text, &host), pair(&user, &password));
        }

        #[test]
        fn parsing_any_bytes_does_not_panic(text in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = Netrc::parse(&text);
        }
    }
}
