//! The login of a connection, and its way to the thread that verifies passwords and back.

use std::fmt;

use super::state::State;
use super::{Connection, ThreadContext};
use crate::auth::client_id::ClientId;
use crate::auth::connection_login::Verdict;
use crate::auth::logins::{Access, Client, Logins, PasswordCheck};
use crate::http::request::{Request, ResponseMode};
use crate::http::route::Route;

impl Connection {
    /// Returns the name in the request that is processed, for the access log.
    pub(crate) fn user(&self) -> Option<&str> {
        self.login.user()
    }

    /// Returns the client whose failed attempts count together.
    pub(crate) fn client_id(&self) -> ClientId {
        self.peer.client_id()
    }

    /// Takes out the password that has to be verified. Then the connection waits for
    /// [`Connection::set_verdict`].
    pub(crate) fn take_password_check(&mut self) -> Option<Box<PasswordCheck>> {
        match std::mem::replace(&mut self.state, State::Idle) {
            State::Verifying(check) => Some(check),
            other => {
                self.state = other;
                None
            }
        }
    }

    /// Sets the result for the request at the beginning of the input.
    pub(crate) fn set_verdict(&mut self, verdict: Verdict) {
        self.login.set_verdict(verdict);
    }

    /// Decides whether the client may send a request. A server without logins grants every one.
    pub(super) fn check_login(
        &mut self,
        request: &Request<'_>,
        route: &Route,
        logins: Option<&Logins>,
    ) -> Access {
        let Some(logins) = logins else {
            return Access::Granted;
        };
        let from = self.client_id();
        let state = &mut self.login;
        logins.check(request, route, Client { state, from })
    }
}

impl ThreadContext<'_> {
    pub(super) fn mode(&self, request: &Request<'_>) -> ResponseMode {
        ResponseMode {
            is_private: self.logins.is_some_and(Logins::are_needed_to_read),
            ..request.mode()
        }
    }
}

/// The input is left out, because it may have a password.
impl fmt::Debug for Connection {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut this = formatter.debug_struct("Connection");
        this.field("peer", &self.peer).field("state", &self.state);
        this.finish_non_exhaustive()
    }
}
