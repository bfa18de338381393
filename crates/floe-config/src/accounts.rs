//! Users and groups of the machine.
//!
//! glibc looks them up with the libraries that `/etc/nsswitch.conf` names. A static binary contains
//! another glibc than those libraries expect, which can crash the process. So a static binary reads
//! `/etc/passwd` and `/etc/group` itself.

use std::fs;
use std::io;
use std::path::PathBuf;

use nix::errno::Errno;
use nix::unistd::{Gid, Group, Uid, User};

/// A user of the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// The name of the user.
    pub name: String,
    /// The number of the user.
    pub uid: Uid,
    /// The user's primary group.
    pub gid: Gid,
    /// The home directory.
    pub home: PathBuf,
}

/// Returns the user with a number.
///
/// Errors: the system cannot look users up.
pub fn user_by_uid(uid: Uid) -> io::Result<Option<Account>> {
    if IS_STATIC {
        find_user(|user| user.uid == uid)
    } else {
        Ok(found(User::from_uid(uid))?.map(Account::from))
    }
}

/// Returns the user with a name.
///
/// Errors: the system cannot look users up.
pub fn user_by_name(name: &str) -> io::Result<Option<Account>> {
    if IS_STATIC {
        find_user(|user| user.name == name)
    } else {
        Ok(found(User::from_name(name))?.map(Account::from))
    }
}

/// Returns the number of the group with a name.
///
/// Errors: the system cannot look groups up.
pub fn group_by_name(name: &str) -> io::Result<Option<Gid>> {
    Ok(find_group(name)?.map(|(gid, _)| gid))
}

/// Whether a list names a user, as those of `trusted-users` and `allowed-users` do: by `*`, by the
/// user's name, or by `@GROUP` for a group with this user. `gid` is the group of the process. A
/// user without an account has its number as the name, as for Nix.
///
/// Errors: the system cannot look groups up.
pub fn names_user(
    list: &[String],
    (uid, user): (Uid, Option<&Account>),
    gid: Gid,
) -> io::Result<bool> {
    let name = user.map_or_else(|| uid.to_string(), |user| user.name.clone());
    let is_user = |entry: &String| entry == "*" || *entry == name;
    if list.iter().any(is_user) {
        return Ok(true);
    }
    for group in list.iter().filter_map(|entry| entry.strip_prefix('@')) {
        let Some((number, members)) = find_group(group)? else {
            continue;
        };
        if number == gid || user.is_some_and(|user| members.contains(&user.name)) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns the number and the members of the group with a name.
fn find_group(name: &str) -> io::Result<Option<(Gid, Vec<String>)>> {
    if IS_STATIC {
        let lines = lines(GROUP)?;
        Ok(lines.iter().find_map(|line| parse_group(line, name)))
    } else {
        Ok(found(Group::from_name(name))?.map(|group| (group.gid, group.mem)))
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

/// Turns the errors by which getpwnam(3) and getgrnam(3) report an absent name into `None`. glibc
/// reports one of them if `/etc/passwd` or `/etc/group` does not exist.
fn found<T>(lookup: nix::Result<Option<T>>) -> io::Result<Option<T>> {
    match lookup {
        Err(Errno::ENOENT | Errno::ESRCH | Errno::EBADF | Errno::EPERM) => Ok(None),
        lookup => Ok(lookup?),
    }
}

/// Returns the first user in `/etc/passwd` that fits.
fn find_user(is_it: impl FnMut(&Account) -> bool) -> io::Result<Option<Account>> {
    let lines = lines(PASSWD)?;
    Ok(lines.iter().filter_map(|line| parse_user(line)).find(is_it))
}

/// Returns the lines of a file, or none if it does not exist: a machine may have no users.
fn lines(file: &str) -> io::Result<Vec<String>> {
    let text = match fs::read(file) {
        Ok(text) => String::from_utf8_lossy(&text).into_owned(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(error),
    };
    Ok(text.lines().map(str::to_owned).collect())
}

/// Parses a line of passwd(5): name, password, number, number of the group, comment, home, shell.
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

/// Parses a line of group(5): name, password, number, members. Returns the number and the members
/// if the name fits.
fn parse_group(line: &str, name: &str) -> Option<(Gid, Vec<String>)> {
    let mut fields = line.split(':');
    let number = (fields.next()? == name).then(|| fields.nth(1))??;
    let members = fields.next()?.split(',').filter(|name| !name.is_empty());
    let members = members.map(str::to_owned).collect();
    Some((Gid::from_raw(number.parse().ok()?), members))
}

const PASSWD: &str = "/etc/passwd";
const GROUP: &str = "/etc/group";

/// Whether the program contains glibc.
const IS_STATIC: bool = cfg!(all(target_env = "gnu", target_feature = "crt-static"));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_the_same_in_files_and_system() {
        let by_file = find_user(|user| user.name == "root").unwrap();
        assert!(by_file.is_some());
        assert_eq!(user_by_name("root").unwrap(), by_file);
        assert_eq!(user_by_uid(Uid::from_raw(0)).unwrap(), by_file);
        let by_file = lines(GROUP)
            .unwrap()
            .iter()
            .find_map(|line| parse_group(line, "root"));
        assert_eq!(find_group("root").unwrap(), by_file);
        assert_eq!(group_by_name("root").unwrap(), Some(Gid::from_raw(0)));
    }

    #[test]
    fn machine_without_accounts_has_no_group() {
        for absent in [Errno::ENOENT, Errno::ESRCH] {
            assert_eq!(found::<Gid>(Err(absent)).unwrap(), None, "{absent}");
        }
        assert!(found::<Gid>(Err(Errno::EIO)).is_err());
        assert_eq!(lines("/nonexistent/group").unwrap(), Vec::<String>::new());
    }

    #[test]
    fn lists_name_users_and_groups() {
        let root = user_by_uid(Uid::from_raw(0)).unwrap();
        let names = |list: &[&str], gid: u32| {
            let list: Vec<String> = list.iter().map(|&entry| entry.to_owned()).collect();
            let user = (Uid::from_raw(0), root.as_ref());
            names_user(&list, user, Gid::from_raw(gid)).unwrap()
        };
        assert!(names(&["x", "*"], 1) && names(&["root"], 1) && names(&["@root"], 0));
        assert!(!names(&[], 0) && !names(&["@root", "@absent", "roo"], 12345));
        let unknown = (Uid::from_raw(1000), None);
        let names = |name: &str| names_user(&[name.into()], unknown, Gid::from_raw(1)).unwrap();
        assert!(!names("root") && names("1000"));
    }

    #[test]
    fn invalid_lines_are_ignored() {
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
            Some((Gid::from_raw(30000), vec!["a".into(), "b".into()]))
        );
        for line in ["nixbld:x", "nixbld:x:many:", "nixbld2:x:1:", ":x:1:"] {
            assert_eq!(parse_group(line, "nixbld"), None, "{line}");
        }
    }
}
