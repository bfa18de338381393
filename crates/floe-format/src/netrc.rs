//! The file `netrc`: user names and passwords for hosts, as curl and Nix read it.
//!
//! Words apart by white space: `machine HOST`, `default`, `login NAME`, `password WORD`,
//! `account WORD`, and `macdef NAME` with a text up to an empty line. A word in quotes may hold
//! white space and `\"`, `\\`, `\n`, `\r`, `\t`; a `#` where a line begins makes it a comment.
//! Source: curl's `docs/internals` and `lib/netrc.c`, and ftp(1).

use std::fmt;

/// Who somebody is for a host.
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    /// The user name; empty where only a password was given.
    pub user: String,
    /// The password.
    pub password: String,
}

impl fmt::Debug for Login {
    /// Without the password, so that no message can hold it by mistake.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login")
            .field("user", &self.user)
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
    /// A word stands where a keyword has to.
    #[error(
        "line {line}: a word that is none of machine, default, login, password, account, macdef"
    )]
    Unknown {
        /// The line, counted from 1.
        line: usize,
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
    host: Option<String>,
    login: Login,
}

impl Netrc {
    /// Parses the file.
    pub fn parse(text: &str) -> Result<Netrc, NetrcError> {
        if text.len() > NETRC_LEN_MAX {
            return Err(NetrcError::TooLong);
        }
        let mut netrc = Netrc::default();
        let mut words = Words::of(text);
        while let Some(word) = words.next()? {
            let line = words.line;
            match word.as_str() {
                "machine" => {
                    let host = words.after("machine")?.to_ascii_lowercase();
                    netrc.begin(Some(host));
                }
                "default" => netrc.begin(None),
                "login" => {
                    let user = words.after("login")?;
                    netrc.change(line, |login| login.user = user)?;
                }
                "password" => {
                    let password = words.after("password")?;
                    netrc.change(line, |login| login.password = password)?;
                }
                "account" => {
                    words.after("account")?;
                }
                "macdef" => {
                    words.after("macdef")?;
                    words.skip_macro();
                }
                _ => return Err(NetrcError::Unknown { line }),
            }
        }
        Ok(netrc)
    }

    /// What the first entry that is for a host says, if there is one.
    pub fn login(&self, host: &str) -> Option<&Login> {
        let is_for = |entry: &&Entry| match &entry.host {
            Some(name) => name.eq_ignore_ascii_case(host),
            None => true,
        };
        self.entries.iter().find(is_for).map(|entry| &entry.login)
    }

    fn begin(&mut self, host: Option<String>) {
        let (user, password) = (String::new(), String::new());
        let login = Login { user, password };
        self.entries.push(Entry { host, login });
    }

    /// What stands before the first machine is for none.
    fn change(&mut self, line: usize, change: impl FnOnce(&mut Login)) -> Result<(), NetrcError> {
        let entry = self.entries.last_mut();
        change(&mut entry.ok_or(NetrcError::Unknown { line })?.login);
        Ok(())
    }
}

/// The words of a text.
struct Words<'a> {
    rest: &'a str,
    /// The line of the word that was read last, counted from 1.
    line: usize,
    is_line_start: bool,
}

impl<'a> Words<'a> {
    fn of(text: &'a str) -> Words<'a> {
        Words {
            rest: text,
            line: 1,
            is_line_start: true,
        }
    }

    fn next(&mut self) -> Result<Option<String>, NetrcError> {
        loop {
            let Some(first) = self.rest.chars().next() else {
                return Ok(None);
            };
            match first {
                '\n' => {
                    self.line += 1;
                    self.is_line_start = true;
                    self.rest = &self.rest[1..];
                }
                _ if first.is_whitespace() => self.rest = &self.rest[first.len_utf8()..],
                '#' if self.is_line_start => self.skip_line(),
                '"' => return self.quoted().map(Some),
                _ => {
                    self.is_line_start = false;
                    let end = self.rest.find(char::is_whitespace);
                    let (word, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
                    self.rest = rest;
                    return Ok(Some(word.to_owned()));
                }
            }
        }
    }

    fn after(&mut self, keyword: &'static str) -> Result<String, NetrcError> {
        let line = self.line;
        self.next()?.ok_or(NetrcError::Incomplete { line, keyword })
    }

    fn quoted(&mut self) -> Result<String, NetrcError> {
        self.is_line_start = false;
        let open = NetrcError::OpenQuotation { line: self.line };
        let mut word = String::new();
        let mut chars = self.rest.char_indices().skip(1);
        while let Some((at, char)) = chars.next() {
            match char {
                '"' => {
                    self.rest = &self.rest[at + 1..];
                    return Ok(word);
                }
                '\n' => return Err(open),
                '\\' => match chars.next() {
                    Some((_, 'n')) => word.push('\n'),
                    Some((_, 'r')) => word.push('\r'),
                    Some((_, 't')) => word.push('\t'),
                    Some((_, other)) => word.push(other),
                    None => return Err(open),
                },
                other => word.push(other),
            }
        }
        Err(open)
    }

    /// Leaves the end of the line, which counts it.
    fn skip_line(&mut self) {
        let end = self.rest.find('\n').unwrap_or(self.rest.len());
        self.rest = &self.rest[end..];
    }

    /// A macro ends at the first empty line.
    fn skip_macro(&mut self) {
        self.skip_line();
        while let Some(rest) = self.rest.strip_prefix('\n') {
            self.line += 1;
            self.is_line_start = true;
            self.rest = rest;
            let line = rest.split('\n').next().unwrap_or_default();
            if line.trim().is_empty() {
                return;
            }
            self.skip_line();
        }
    }
}

/// A thousand times any real one, in bytes.
pub const NETRC_LEN_MAX: usize = 1024 * 1024;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn login(text: &str, host: &str) -> Option<(String, String)> {
        let netrc = Netrc::parse(text).unwrap();
        let login = netrc.login(host)?;
        Some((login.user.clone(), login.password.clone()))
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
    fn an_error_names_the_line_and_no_word_of_the_file() {
        for (text, wanted) in [
            ("machine a login u\nsecret", "line 2: a word that is none"),
            ("login u password secret", "line 1: a word that is none"),
            (
                "machine a\nlogin u password",
                "line 2: nothing follows password",
            ),
            (
                "machine a\n\nlogin u password \"secret",
                "line 3: a quotation",
            ),
        ] {
            let message = Netrc::parse(text).unwrap_err().to_string();
            assert!(message.starts_with(wanted), "{text:?}: {message}");
            assert!(!message.contains("secret"), "{message}");
        }
        let netrc = Netrc::parse("machine a login u password secret").unwrap();
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
        fn any_text_is_read_or_refused(text in ".*") {
            let _ = Netrc::parse(&text);
        }
    }
}
