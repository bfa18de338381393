//! The login file: its lines, and the rules for who may read it.

use std::fmt;
use std::fs::Metadata;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use floe_store::open_regular_file;
use rustix::process::geteuid;

use super::login::{Login, LoginError};
use crate::error::ServeError;

/// The lines of a login file, with its comments.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoginFile {
    lines: Vec<Line>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Line {
    /// A comment or an empty line, as it was read.
    Comment(String),
    Login(Login),
}

/// The reason why a text is not a login file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoginFileError {
    /// There is no line at all.
    #[error("it is empty, so it may be half-written; try floe serve auth add-user")]
    Empty,
    /// The end of a line was lost, and with it perhaps an expiry.
    #[error(
        "line {0}: the line does not end, so the file may be half-written; end it with a newline"
    )]
    UnfinishedLine(usize),
    /// A line is not valid.
    #[error("line {number}: {error}")]
    Line {
        /// The number of the line, from 1.
        number: usize,
        /// The cause.
        error: LoginError,
    },
    /// Two logins have the same name.
    #[error("line {number}: line {earlier} has a login of the same name")]
    Duplicate {
        /// The number of the second line.
        number: usize,
        /// The number of the first line.
        earlier: usize,
    },
    /// The bytes are not text.
    #[error("it is not UTF-8")]
    NotText,
}

impl LoginFile {
    /// Reads a file that only this user, or root, can read and change.
    ///
    /// Errors: [`ServeError::LoginFile`].
    pub fn read(path: &Path) -> Result<LoginFile, ServeError> {
        let failed = |reason: String| ServeError::LoginFile {
            path: path.to_owned(),
            reason,
        };
        let io_failed = |error: io::Error| failed(reason(&error));
        let mut file = open_regular_file(path).map_err(io_failed)?;
        let metadata = file.metadata().map_err(io_failed)?;
        check_access(&metadata, geteuid().as_raw()).map_err(failed)?;
        let mut bytes = Vec::new();
        let mut limited = (&mut file).take(FILE_LEN_MAX + 1);
        limited.read_to_end(&mut bytes).map_err(io_failed)?;
        if bytes.len() as u64 > FILE_LEN_MAX {
            return Err(failed(format!("it has more than {FILE_LEN_MAX} bytes")));
        }
        LoginFile::parse(&bytes).map_err(|error| failed(error.to_string()))
    }

    /// Parses the contents of a file.
    pub fn parse(bytes: &[u8]) -> Result<LoginFile, LoginFileError> {
        let text = std::str::from_utf8(bytes).map_err(|_| LoginFileError::NotText)?;
        if text.trim().is_empty() {
            return Err(LoginFileError::Empty);
        }
        if !text.ends_with('\n') {
            return Err(LoginFileError::UnfinishedLine(text.lines().count()));
        }
        let mut lines: Vec<Line> = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let number = index + 1;
            if line.trim().is_empty() || line.trim_start().starts_with('#') {
                lines.push(Line::Comment(line.to_owned()));
                continue;
            }
            let login = Login::parse(line.trim());
            let login = login.map_err(|error| LoginFileError::Line { number, error })?;
            let same = |line: &Line| matches!(line, Line::Login(it) if it.name() == login.name());
            if let Some(earlier) = lines.iter().position(same) {
                let earlier = earlier + 1;
                return Err(LoginFileError::Duplicate { number, earlier });
            }
            lines.push(Line::Login(login));
        }
        Ok(LoginFile { lines })
    }

    /// Returns the contents of a new file, which has only a comment.
    pub fn new() -> LoginFile {
        let lines = COMMENT.lines().map(|line| Line::Comment(line.to_owned()));
        LoginFile {
            lines: lines.collect(),
        }
    }

    /// Returns the logins in the order of their lines.
    pub fn logins(&self) -> impl Iterator<Item = &Login> {
        self.lines.iter().filter_map(|line| match line {
            Line::Login(login) => Some(login),
            Line::Comment(_) => None,
        })
    }

    /// Returns the login with a name.
    pub fn find(&self, name: &str) -> Option<&Login> {
        self.logins().find(|login| login.name() == name)
    }

    /// Adds a login as the last line, in the place of a login of the same name.
    pub fn insert(&mut self, login: Login) {
        self.remove(login.name());
        self.lines.push(Line::Login(login));
    }

    /// Removes the login with a name. Returns whether there was one.
    pub fn remove(&mut self, name: &str) -> bool {
        let before = self.lines.len();
        self.lines
            .retain(|line| !matches!(line, Line::Login(login) if login.name() == name));
        self.lines.len() < before
    }
}

/// The contents of the file.
impl fmt::Display for LoginFile {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.lines {
            match line {
                Line::Comment(text) => writeln!(formatter, "{text}")?,
                Line::Login(login) => writeln!(formatter, "{login}")?,
            }
        }
        Ok(())
    }
}

/// Checks that no other user can read or change a file. Returns the fault otherwise.
///
/// Errors: the text names the fault and its remedy.
fn check_access(metadata: &Metadata, user: u32) -> Result<(), String> {
    let owner = metadata.uid();
    // Root tests and changes the file of a service that runs as another user.
    if owner != user && ![owner, user].contains(&ROOT) {
        return Err(format!(
            "it belongs to the user {owner}, and not to the user {user} of this process or to \
             root; try chown"
        ));
    }
    let mode = metadata.mode() & 0o7777;
    // systemd gives the files of LoadCredential= to root and its group, and lets the user of the
    // service read them by an access control list. The mode of the group is then that of the list.
    let is_credential = owner == ROOT && metadata.gid() == ROOT;
    let allowed = if is_credential { 0o640 } else { 0o600 };
    match mode & !allowed {
        0 => Ok(()),
        _ => Err(format!(
            "other users can use it (mode {mode:04o}); try chmod 600"
        )),
    }
}

/// Returns the cause of an error without the number of the system.
fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "there is no such file; try floe serve auth add-user".into(),
        io::ErrorKind::PermissionDenied => "this user may not read it".into(),
        _ => error.to_string(),
    }
}

const ROOT: u32 = 0;

/// The largest file: about 30,000 logins. Larger files are surely mistakes.
pub const FILE_LEN_MAX: u64 = 4 * 1024 * 1024;

const COMMENT: &str = "# Logins of floe serve: NAME:HASH:SCOPES:EXPIRY. SIGHUP makes the server \
                       read this file again.\n";

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use proptest::prelude::*;

    use super::super::secret_hash::SecretHash;
    use super::super::secret_hash::tests::{BCRYPT, hashes};
    use super::*;

    fn parse(text: &str) -> Result<LoginFile, LoginFileError> {
        LoginFile::parse(text.as_bytes())
    }

    #[test]
    fn comments_and_other_lines_stay_when_a_login_is_added() {
        let text = format!("# first\n\n alice:{BCRYPT}:read\n#end\n");
        let mut file = parse(&text).unwrap();
        let secret = SecretHash::parse(BCRYPT).unwrap();
        file.insert(Login::new("bob", secret).unwrap());
        let expected = format!("# first\n\nalice:{BCRYPT}:read\n#end\nbob:{BCRYPT}:read\n");
        assert_eq!(file.to_string(), expected);
        assert!(file.remove("alice") && !file.remove("alice"));
        let names: Vec<&str> = file.logins().map(Login::name).collect();
        assert_eq!(names, ["bob"]);
        assert!(file.to_string().starts_with("# first\n\n#end\n"));
    }

    #[test]
    fn cut_or_contradictory_file_is_an_error_with_its_line() {
        let line = format!("alice:{BCRYPT}:read");
        for (text, message) in [
            ("", "it is empty"),
            (" \n\n", "it is empty"),
            (&line, "line 1: the line does not end"),
            (&format!("#\n{line}\n{line}\n"), "line 3: line 2 has"),
            (&format!("{line}\nbob\n"), "line 2: the line has no colon"),
            (
                &format!("{line}\nbob:{}\n", &BCRYPT[..20]),
                "line 2: the bcrypt",
            ),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.starts_with(message), "{error}");
            assert!(!error.contains(&BCRYPT[7..15]), "{error}");
        }
        assert_eq!(LoginFile::parse(b"\xff\n"), Err(LoginFileError::NotText));
        assert_eq!(parse(&LoginFile::new().to_string()), Ok(LoginFile::new()));
    }

    #[test]
    fn file_that_others_can_use_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("logins");
        fs::write(&path, format!("alice:{BCRYPT}\n")).unwrap();
        let user = geteuid().as_raw();
        let check = |mode: u32, user: u32| {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            check_access(&fs::metadata(&path).unwrap(), user)
        };
        for mode in [0o600, 0o400] {
            check(mode, user).unwrap();
        }
        for mode in [0o644, 0o660, 0o604, 0o620, 0o700, 0o4600] {
            let fault = check(mode, user).unwrap_err();
            assert!(fault.contains("chmod 600"), "{fault}");
        }
        // A file of root is accepted for every user, another one only for its owner.
        assert_eq!(check(0o600, user + 1).is_ok(), user == ROOT);
        if user == ROOT {
            const OTHER: u32 = 12_345;
            std::os::unix::fs::chown(&path, Some(OTHER), Some(OTHER)).unwrap();
            check(0o600, ROOT).unwrap();
            check(0o600, OTHER).unwrap();
            assert!(check(0o600, OTHER + 1).unwrap_err().contains("chown"));
        }
    }

    #[test]
    fn unreadable_file_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("logins");
        let message = |path: &Path| LoginFile::read(path).unwrap_err().to_string();
        let start = format!("cannot use the login file {}: ", path.display());
        assert_eq!(
            message(&path),
            format!("{start}there is no such file; try floe serve auth add-user")
        );
        fs::write(&path, format!("alice:{BCRYPT}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(message(&path).starts_with(&format!("{start}other users can use it")));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(LoginFile::read(&path).unwrap().logins().count(), 1);
    }

    proptest! {
        #[test]
        fn printed_file_parses_to_itself(
            secrets in prop::collection::vec(hashes(), 1..5),
            comment in "[ \t]{0,2}#[ -~]{0,20}",
        ) {
            let mut file = LoginFile {
                lines: vec![Line::Comment(comment)],
            };
            for (number, secret) in secrets.into_iter().enumerate() {
                file.insert(Login::new(&format!("user{number}"), secret).unwrap());
            }
            prop_assert_eq!(parse(&file.to_string()).unwrap(), file);
        }

        #[test]
        fn any_bytes_are_parsed_without_panic(bytes: Vec<u8>) {
            let _: Result<LoginFile, LoginFileError> = LoginFile::parse(&bytes);
        }
    }
}
