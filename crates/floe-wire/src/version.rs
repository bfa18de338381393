//! The versions of the worker protocol.

use std::fmt;

/// A version of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// The major version, which has been 1 since 2004.
    pub major: u8,
    /// The minor version.
    pub minor: u8,
}

impl Version {
    /// The version that floe offers: that of Nix 2.22 and 2.23.
    pub const OFFERED: Version = Version {
        major: 1,
        minor: 37,
    };

    /// The oldest version that floe speaks: that of Nix 2.4. Older daemons pull the NARs that a
    /// client sends.
    pub const MINIMUM: Version = Version {
        major: 1,
        minor: 32,
    };

    pub(crate) fn to_number(self) -> u64 {
        u64::from(self.major) << 8 | u64::from(self.minor)
    }

    pub(crate) fn from_number(number: u64) -> Version {
        let [minor, major, ..] = number.to_le_bytes();
        Version { major, minor }
    }

    pub(crate) fn has_server_name(self) -> bool {
        self.minor >= 33
    }

    pub(crate) fn has_cpu_times(self) -> bool {
        self.minor >= 37
    }

    pub(crate) fn has_trust(self) -> bool {
        self.minor >= 35
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}
