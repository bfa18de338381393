//! How an option of `floe serve` is declared: the macro of the table in [`super`], and its parts.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use floe_server::{Compress, Listen, TrustedProxies, TrustedProxy};

use crate::setting::AnySetting;
use crate::value::ByteSize;

/// The flags of an option, and its place among the others.
#[derive(Clone, Copy, Debug)]
pub struct ServeOption {
    /// The flags and the name of the value as in `--help`, such as `-p, --port PORT`.
    usage: &'static str,
    pub(super) kind: KeyKind,
    /// The keys that must not stand beside this one. For flags, the same is true.
    pub excludes: &'static [&'static str],
    /// Whether a running server takes over another value.
    pub(super) is_live: bool,
    /// The key before which it is printed. Others are printed in the order of the table.
    pub(super) printed_before: Option<&'static str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyKind {
    /// A key with a flag.
    Flag,
    /// A key with the flag of that name which most commands of floe have.
    CommonFlag,
    /// A key with a flag that [`super::ServeSettings::resolve`] moves into `listen`.
    Address,
    /// A key of harmonia.
    Harmonia,
}

impl ServeOption {
    pub(super) const fn new(usage: &'static str) -> ServeOption {
        ServeOption {
            usage,
            kind: KeyKind::Flag,
            excludes: &[],
            is_live: false,
            printed_before: None,
        }
    }

    /// Marks an option of which a running server takes over another value.
    pub(super) const fn live(mut self) -> ServeOption {
        self.is_live = true;
        self
    }

    pub(super) const fn kind(mut self, kind: KeyKind) -> ServeOption {
        self.kind = kind;
        self
    }

    pub(super) const fn excluding(mut self, keys: &'static [&'static str]) -> ServeOption {
        self.excludes = keys;
        self
    }

    pub(super) const fn printed_before(mut self, key: &'static str) -> ServeOption {
        self.printed_before = Some(key);
        self
    }

    /// Returns the flag with its dashes, if `floe serve` has one of its own.
    pub fn flag(&self) -> Option<&'static str> {
        let has_flag = matches!(self.kind, KeyKind::Flag | KeyKind::Address);
        let flag = self.usage.split(' ').find(|word| word.starts_with("--"));
        flag.filter(|_| has_flag)
    }

    /// Returns the letter of the short flag.
    pub fn short(&self) -> Option<char> {
        let (short, _) = self.usage.split_once(", ")?;
        short.chars().nth(1)
    }

    /// Returns the name of the value; empty for a switch.
    pub fn value_name(&self) -> &'static str {
        let last = self.usage.rsplit(' ').next().unwrap_or_default();
        if last.starts_with('-') { "" } else { last }
    }
}

/// An option with its setting.
pub struct ServeEntry<'a> {
    /// The key of the configuration file.
    pub key: &'static str,
    /// The lines of the text in `--help`.
    pub help: &'static [&'static str],
    /// Its flags, and its place among the others.
    pub option: ServeOption,
    /// The setting.
    pub setting: &'a mut dyn AnySetting,
}

/// A field of the server's configuration that a setting fills.
pub(super) trait ServerField<T> {
    /// Returns the default of the setting, if the field has a value.
    fn default_setting(&self) -> Option<T>;
    fn fill(&mut self, value: T);
}

/// A row has the type of the setting, that of the field, the default, and the new value.
macro_rules! server_fields {
    ($($setting:ty => $field:ty, |$own:ident| $default:expr, |$value:ident| $new:expr;)*) => {$(
        impl ServerField<$setting> for $field {
            fn default_setting(&self) -> Option<$setting> {
                let $own = self;
                $default
            }

            fn fill(&mut self, $value: $setting) {
                *self = $new;
            }
        }
    )*};
}

server_fields! {
    i32 => i32, |field| Some(*field), |value| value;
    NonZeroUsize => NonZeroUsize, |field| Some(*field), |value| value;
    Duration => Duration, |field| Some(*field), |value| value;
    Compress => Compress, |field| Some(*field), |value| value;
    ByteSize => u64, |field| Some(ByteSize(*field)), |size| size.0;
    ByteSize => usize, |field| Some(ByteSize(*field as u64)),
        |size| usize::try_from(size.0).unwrap_or(usize::MAX);
    bool => bool, |_field| None, |value| value;
    NonZeroUsize => Option<NonZeroUsize>, |_field| None, |value| Some(value);
    PathBuf => Option<PathBuf>, |_field| None, |value| Some(value);
    Vec<Listen> => Vec<Listen>, |_field| None, |value| value;
    Vec<TrustedProxy> => TrustedProxies, |_field| None, |value| value.into();
}

/// Declares [`super::ServeSettings`]. A row has the text for `--help`, the key, the type, after
/// `=>` the field of [`floe_server::Config`] with the default that the value replaces, and the
/// flags.
macro_rules! serve_settings {
    ($(
        $(#[doc = $help:literal])+
        $key:ident: $type:ty $(=> $($field:ident).+)?, $option:expr;
    )+) => {
        /// The settings of `floe serve`. Fields have the names of the keys.
        #[derive(Clone, Debug, Default)]
        pub struct ServeSettings {
            $($(#[doc = $help])+ pub $key: Setting<Option<$type>>,)+
            harmonia: HarmoniaKeys,
            warnings: Vec<String>,
        }

        impl ServeSettings {
            /// All keys, in the order of `--help`; at last those of harmonia.
            pub fn entries(&mut self) -> Vec<ServeEntry<'_>> {
                let mut entries = vec![$(ServeEntry {
                    key: stringify!($key),
                    help: &[$($help),+],
                    option: $option,
                    setting: &mut self.$key,
                }),+];
                entries.extend(self.harmonia.entries());
                entries
            }

            /// Takes over the settings of flags.
            pub fn override_by(&mut self, flags: ServeSettings) {
                $(if flags.$key.is_set() {
                    self.$key = flags.$key;
                })+
            }

            /// Sets what is not set to the defaults of the server.
            fn set_server_defaults(&mut self, config: &Config) {
                $($(if let Some(default) = config.$($field).+.default_setting() {
                    self.$key.set_default(default);
                })?)+
            }

            /// Fills the configuration of the server with the settings that need no further steps.
            pub fn fill(&self, config: &mut Config) {
                $($(if let Some(value) = self.$key.value() {
                    config.$($field).+.fill(value.clone());
                })?)+
            }
        }
    };
}

pub(super) use serve_settings;
