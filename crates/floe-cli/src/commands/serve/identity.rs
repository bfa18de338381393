//! The user and group that a server becomes when it holds its sockets and keys.

use std::ffi::CString;

use anyhow::{Context as _, bail};
use floe_config::accounts::{self, Account};
use nix::unistd::{self, Gid, Uid};

use crate::exit::UsageError;

/// A user, a group, or both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    user: Option<(String, Uid)>,
    group: Option<Gid>,
}

impl Identity {
    /// By names or numbers. A user brings its own group, unless another is named.
    pub(crate) fn find(
        user: Option<&str>,
        group: Option<&str>,
    ) -> anyhow::Result<Option<Identity>> {
        let user = user.map(find_user).transpose()?;
        let group = match (group, &user) {
            (Some(group), _) => Some(find_group(group)?),
            (None, Some(user)) => Some(user.gid),
            (None, None) => return Ok(None),
        };
        Ok(Some(Identity {
            user: user.map(|user| (user.name, user.uid)),
            group,
        }))
    }

    /// Becomes it, for good and in every thread. Who is it already has nothing to do.
    pub(crate) fn switch(&self) -> anyhow::Result<()> {
        if self.is_current() {
            return Ok(());
        }
        if let Some(group) = self.group {
            let attempt = || format!("changing to group {group}");
            match &self.user {
                Some((name, _)) => {
                    let name = CString::new(name.as_str()).with_context(attempt)?;
                    unistd::initgroups(&name, group).with_context(attempt)?;
                }
                None => unistd::setgroups(&[group]).with_context(attempt)?,
            }
            unistd::setgid(group).with_context(attempt)?;
        }
        if let Some((name, uid)) = &self.user {
            unistd::setuid(*uid).with_context(|| format!("changing to user {name}"))?;
            if !uid.is_root() && unistd::setuid(Uid::from_raw(0)).is_ok() {
                bail!("changing to user {name}: the process could still become root again");
            }
        }
        Ok(())
    }

    fn is_current(&self) -> bool {
        let is_user = |uid: Uid| unistd::geteuid() == uid && unistd::getuid() == uid;
        let is_group = |gid: Gid| unistd::getegid() == gid && unistd::getgid() == gid;
        self.user.as_ref().is_none_or(|(_, uid)| is_user(*uid)) && self.group.is_none_or(is_group)
    }
}

/// A number need not belong to any account.
fn find_user(text: &str) -> anyhow::Result<Account> {
    let attempt = || format!("looking for user {text}");
    let number = text.parse().ok().map(Uid::from_raw);
    let found = match number {
        Some(uid) => accounts::user_by_uid(uid).with_context(attempt)?,
        None => accounts::user_by_name(text).with_context(attempt)?,
    };
    match (found, number) {
        (Some(user), _) => Ok(user),
        (None, Some(uid)) => Ok(Account {
            name: text.into(),
            uid,
            gid: Gid::from_raw(uid.as_raw()),
            home: "/".into(),
        }),
        (None, None) => Err(UsageError(format!("--user {text}: there is no such user")).into()),
    }
}

fn find_group(text: &str) -> anyhow::Result<Gid> {
    if let Ok(number) = text.parse() {
        return Ok(Gid::from_raw(number));
    }
    let found =
        accounts::group_by_name(text).with_context(|| format!("looking for group {text}"))?;
    match found {
        Some(group) => Ok(group),
        None => Err(UsageError(format!("--group {text}: there is no such group")).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_find_the_same_user_and_its_group() {
        let by_name = Identity::find(Some("root"), None).unwrap();
        assert_eq!(by_name, Identity::find(Some("0"), None).unwrap());
        assert_eq!(by_name.unwrap().group, Some(Gid::from_raw(0)));
        let grouped = Identity::find(Some("root"), Some("12345")).unwrap();
        assert_eq!(grouped.unwrap().group, Some(Gid::from_raw(12345)));
        assert_eq!(Identity::find(None, None).unwrap(), None);
    }

    #[test]
    fn who_is_not_there_is_named() {
        let message = |user, group| Identity::find(user, group).unwrap_err().to_string();
        assert!(message(Some("no-such-user"), None).contains("no-such-user"));
        assert!(message(None, Some("no-such-group")).contains("no-such-group"));
    }

    #[test]
    fn becoming_who_one_is_already_needs_no_right() {
        let user = unistd::getuid().to_string();
        let group = unistd::getgid().to_string();
        let identity = Identity::find(Some(&user), Some(&group)).unwrap();
        identity.unwrap().switch().unwrap();
    }
}
