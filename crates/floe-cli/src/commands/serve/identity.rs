//! The user and group to which a server switches after it has opened its sockets and keys.

use std::ffi::CString;

use anyhow::{Context as _, bail};
use floe_config::accounts::{self, Account};
use nix::unistd::{self, Gid, Uid};

use super::messages;
use crate::exit::UsageError;

/// A group, and a user if the server switches to one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    user: Option<(String, Uid)>,
    group: Gid,
}

impl Identity {
    /// Finds a user and a group by name or number. The default of the group is the user's own.
    ///
    /// Errors: there is no such user or group, or the system cannot look them up.
    pub(crate) fn find(
        user: Option<&str>,
        group: Option<&str>,
    ) -> anyhow::Result<Option<Identity>> {
        let user = user.map(find_user).transpose()?;
        let group = match (group, &user) {
            (Some(group), _) => find_group(group)?,
            (None, Some(user)) => user.gid,
            (None, None) => return Ok(None),
        };
        let user = user.map(|user| (user.name, user.uid));
        Ok(Some(Identity { user, group }))
    }

    /// Switches all threads of the process for good. Does nothing if the process has this user and
    /// group already.
    ///
    /// Errors: the system refuses, or the process could switch back to root.
    pub(crate) fn switch(&self) -> anyhow::Result<()> {
        if self.is_current() {
            return Ok(());
        }
        let group = self.group;
        let attempt = || messages::group_change(group);
        match &self.user {
            Some((name, _)) => {
                let name = CString::new(name.as_str()).with_context(attempt)?;
                unistd::initgroups(&name, group).with_context(attempt)?;
            }
            None => unistd::setgroups(&[group]).with_context(attempt)?,
        }
        unistd::setgid(group).with_context(attempt)?;
        if let Some((name, uid)) = &self.user {
            unistd::setuid(*uid).with_context(|| messages::user_change(name))?;
            if !uid.is_root() && unistd::setuid(Uid::from_raw(0)).is_ok() {
                bail!(messages::user_change_is_reversible(name));
            }
        }
        Ok(())
    }

    fn is_current(&self) -> bool {
        let is_user = |uid: Uid| unistd::geteuid() == uid && unistd::getuid() == uid;
        self.user.as_ref().is_none_or(|(_, uid)| is_user(*uid))
            && unistd::getegid() == self.group
            && unistd::getgid() == self.group
    }
}

/// Finds a user. A number need not belong to any account.
fn find_user(text: &str) -> anyhow::Result<Account> {
    let number = text.parse().ok().map(Uid::from_raw);
    let found = match number {
        Some(uid) => accounts::user_by_uid(uid),
        None => accounts::user_by_name(text),
    };
    match (found.with_context(|| messages::user_lookup(text))?, number) {
        (Some(user), _) => Ok(user),
        (None, Some(uid)) => Ok(Account {
            name: text.into(),
            uid,
            gid: Gid::from_raw(uid.as_raw()),
            home: "/".into(),
        }),
        (None, None) => Err(UsageError(messages::no_such_user(text)).into()),
    }
}

fn find_group(text: &str) -> anyhow::Result<Gid> {
    if let Ok(number) = text.parse() {
        return Ok(Gid::from_raw(number));
    }
    let found = accounts::group_by_name(text).with_context(|| messages::group_lookup(text))?;
    found.ok_or_else(|| UsageError(messages::no_such_group(text)).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_find_the_same_user_and_group() {
        let by_name = Identity::find(Some("root"), None).unwrap();
        assert_eq!(by_name, Identity::find(Some("0"), None).unwrap());
        assert_eq!(by_name.unwrap().group, Gid::from_raw(0));
        let grouped = Identity::find(Some("root"), Some("12345")).unwrap();
        assert_eq!(grouped.unwrap().group, Gid::from_raw(12345));
        assert_eq!(Identity::find(None, None).unwrap(), None);
    }

    #[test]
    fn missing_user_or_group_is_named() {
        let message = |user, group| Identity::find(user, group).unwrap_err().to_string();
        assert!(message(Some("no-such-user"), None).contains("no-such-user"));
        assert!(message(None, Some("no-such-group")).contains("no-such-group"));
    }

    #[test]
    fn switch_to_the_present_user_needs_no_rights() {
        let user = unistd::getuid().to_string();
        let group = unistd::getgid().to_string();
        let identity = Identity::find(Some(&user), Some(&group)).unwrap();
        identity.unwrap().switch().unwrap();
    }
}
