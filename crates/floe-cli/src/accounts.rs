//! Users and groups of the machine.
//!
//! glibc asks the libraries that `/etc/nsswitch.conf` names. In the static binary those are of
//! another glibc than its own, and may take the process down with them; it reads `/etc/passwd` and
//! `/etc/group` itself.

use std::fs;
use std::io;
use std::path::PathBuf;

use nix::unistd::{Gid, Group, Uid, User};

/// What floe wants to know of a user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Account {
    pub(crate) name: String,
    pub(crate) uid: Uid,
    /// The user's own group.
    pub(crate) gid: Gid,
    pub(crate) home: PathBuf,
}

/// The user with that number.
///
/// Errors: what the system says.
pub(crate) fn user_by_uid(uid: Uid) -> io::Result<Option<Account>> {
    match IS_STATIC {
        true => find_user(|user| user.uid == uid),
        false => Ok(User::from_uid(uid)?.map(Account::from)),
    }
}

/// The user of that name.
///
/// Errors: what the system says.
pub(crate) fn user_by_name(name: &str) -> io::Result<Option<Account>> {
    match IS_STATIC {
        true => find_user(|user| user.name == name),
        false => Ok(User::from_name(name)?.map(Account::from)),
    }
}

/// The group of that name.
///
/// Errors: what the system says.
pub(crate) fn group_by_name(name: &str) -> io::Result<Option<Gid>> {
    match IS_STATIC {
        true => Ok(lines(GROUP)?.find_map(|line| parse_group(&line, name))),
        false => Ok(Group::from_name(name)?.map(|group| group.gid)),
    }
}

impl From<User> for Account {
    fn from(user: User) -> Account {
        Account {
            name: user.name,
            uid: user.uid,
            gid: user.gid,
            home: user.dir,
        }
    }
}

/// The first in the file of users for whom that is so.
fn find_user(is_it: impl FnMut(&Account) -> bool) -> io::Result<Option<Account>> {
    Ok(lines(PASSWD)?
        .filter_map(|line| parse_user(&line))
        .find(is_it))
}

/// The lines of a file, none where it is not there: a machine may have no users at all.
fn lines(file: &str) -> io::Result<impl Iterator<Item = String>> {
    let text = match fs::read(file) {
        Ok(text) => String::from_utf8_lossy(&text).into_owned(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(error),
    };
    Ok(text
        .lines()
        .map(str::to_owned)
        .collect::<Vec<_>>()
        .into_iter())
}

/// passwd(5): name, password, number, number of the group, comment, home, shell.
fn parse_user(line: &str) -> Option<Account> {
    let mut fields = line.split(':');
    let name = fields.next()?.to_owned();
    let uid = fields.nth(1)?.parse().ok()?;
    let gid = fields.next()?.parse().ok()?;
    let home = fields.nth(1)?.into();
    Some(Account {
        name,
        uid: Uid::from_raw(uid),
        gid: Gid::from_raw(gid),
        home,
    })
}

/// group(5): name, password, number, members.
fn parse_group(line: &str, name: &str) -> Option<Gid> {
    let mut fields = line.split(':');
    let number = (fields.next()? == name).then(|| fields.nth(1))??;
    Some(Gid::from_raw(number.parse().ok()?))
}

const PASSWD: &str = "/etc/passwd";
const GROUP: &str = "/etc/group";

/// Whether glibc is a part of this program.
const IS_STATIC: bool = cfg!(all(target_env = "gnu", target_feature = "crt-static"));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_and_system_say_the_same_of_root() {
        let by_file = find_user(|user| user.name == "root").unwrap();
        assert!(by_file.is_some());
        assert_eq!(user_by_name("root").unwrap(), by_file);
        assert_eq!(user_by_uid(Uid::from_raw(0)).unwrap(), by_file);
        let by_file = lines(GROUP)
            .unwrap()
            .find_map(|line| parse_group(&line, "root"));
        assert_eq!(group_by_name("root").unwrap(), by_file);
        assert_eq!(by_file, Some(Gid::from_raw(0)));
    }

    #[test]
    fn lines_that_are_none_are_passed_over() {
        for line in [
            "",
            "#",
            "+::::::",
            "me:x",
            "me:x:one:2::/:",
            "me:x:1:two::/:",
        ] {
            assert_eq!(parse_user(line), None, "{line}");
        }
        assert_eq!(
            parse_group("nixbld:x:30000:a,b", "nixbld"),
            Some(Gid::from_raw(30000))
        );
        for line in ["nixbld:x", "nixbld:x:many:", "nixbld2:x:1:", ":x:1:"] {
            assert_eq!(parse_group(line, "nixbld"), None, "{line}");
        }
    }
}
