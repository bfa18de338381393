//! The profiles of AWS: `~/.aws/credentials` and `~/.aws/config`, in the format of the AWS tools.

use std::fmt::{self, Debug};
use std::io::{self, Read as _};
use std::path::PathBuf;

use configparser::ini::{Ini, IniDefault};
use floe_store::open_regular_file;

use crate::error::CacheError;
use crate::service_environment::ServiceEnvironment;

/// The part of a profile that floe uses.
#[derive(Clone, Default, PartialEq, Eq)]
pub(super) struct Profile {
    /// The key, the secret and perhaps a token.
    pub(super) keys: Option<(String, String, Option<String>)>,
    /// The role, and the file of the token that proves the right to it.
    pub(super) web_identity: Option<(String, String)>,
    pub(super) region: Option<String>,
    /// Why the profile has no keys, if it names another source of them.
    pub(super) unsupported: Option<String>,
}

impl Debug for Profile {
    /// Prints nothing that may be secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Profile")
    }
}

/// Reads a profile. `None` means `AWS_PROFILE`, or the one of the name `default`, which need not
/// exist.
///
/// Errors: [`CacheError::Credentials`] for a file that cannot be read, and for a profile that does
/// not exist.
pub(super) fn read_profile(
    options: &ServiceEnvironment,
    wanted: Option<&str>,
) -> Result<Profile, CacheError> {
    let wanted = wanted.or_else(|| options.variable("AWS_PROFILE"));
    let name = wanted.unwrap_or("default");
    let credentials = read(options, "AWS_SHARED_CREDENTIALS_FILE", "credentials")?;
    let config = read(options, "AWS_CONFIG_FILE", "config")?;
    let in_config = match name {
        "default" => name.to_owned(),
        _ => format!("profile {name}"),
    };
    let files = [(&credentials, name), (&config, &*in_config)];
    let has_section = |(file, section): &(&Ini, &str)| file.get_map_ref().contains_key(*section);
    if !files.iter().any(has_section) {
        return match wanted {
            None => Ok(Profile::default()),
            Some(name) => Err(CacheError::credentials(format!(
                "~/.aws/credentials and ~/.aws/config have no profile {name:?}"
            ))),
        };
    }
    let get = |key: &str| {
        let mut values = files
            .iter()
            .filter_map(|(file, section)| file.get(section, key));
        values.find(|value| !value.is_empty())
    };
    let halves = ["aws_access_key_id", "aws_secret_access_key"].map(|key| (key, get(key)));
    if let [(has, Some(_)), (lacks, None)] | [(lacks, None), (has, Some(_))] = &halves {
        return Err(CacheError::credentials(format!(
            "the profile {name:?} has {has} and no {lacks}; add it"
        )));
    }
    let profile = Profile {
        keys: get("aws_access_key_id")
            .zip(get("aws_secret_access_key"))
            .map(|(key, secret)| (key, secret, get("aws_session_token"))),
        web_identity: get("role_arn").zip(get("web_identity_token_file")),
        region: get("region"),
        unsupported: UNSUPPORTED
            .iter()
            .find(|key| get(key).is_some())
            .map(|key| {
                format!(
                    "the profile {name:?} uses {key}, which floe does not support; try \
                 `eval \"$(aws configure export-credentials --profile {name} --format env)\"`"
                )
            }),
    };
    Ok(profile)
}

/// Reads a file. An absent one is empty.
fn read(options: &ServiceEnvironment, variable: &str, name: &str) -> Result<Ini, CacheError> {
    let mut ini = Ini::new_from_defaults(ini_format());
    let named = options.variable(variable).map(PathBuf::from);
    let in_home = || Some(options.home.as_ref()?.join(".aws").join(name));
    let Some(path) = named.or_else(in_home) else {
        return Ok(ini);
    };
    let failed =
        |why: &str| CacheError::credentials(format!("floe cannot read {}: {why}", path.display()));
    let mut text = String::new();
    match open_regular_file(&path).and_then(|mut file| file.read_to_string(&mut text)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(ini),
        read => read.map_err(|error| failed(&error.to_string()))?,
    };
    // The error of the parser repeats the line, which may contain a secret.
    ini.read(text)
        .map_err(|_| failed("a line is neither [SECTION] nor KEY = VALUE"))?;
    Ok(ini)
}

/// The format of the AWS tools: a secret may contain every delimiter but the first `=`.
fn ini_format() -> IniDefault {
    let mut format = IniDefault::default();
    format.delimiters = vec!['='];
    format.comment_symbols = vec!['#', ';'];
    format.inline_comment_symbols = Some(Vec::new());
    format.case_sensitive = true;
    format
}

/// Keys of profiles that name other sources of credentials.
const UNSUPPORTED: [&str; 4] = [
    "credential_process",
    "sso_session",
    "sso_start_url",
    "source_profile",
];

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn options(credentials: &str, config: &str) -> (tempfile::TempDir, ServiceEnvironment) {
        let home = tempfile::tempdir().unwrap();
        let directory = home.path().join(".aws");
        fs::create_dir(&directory).unwrap();
        fs::write(directory.join("credentials"), credentials).unwrap();
        fs::write(directory.join("config"), config).unwrap();
        let options = ServiceEnvironment {
            home: Some(home.path().to_owned()),
            ..ServiceEnvironment::default()
        };
        (home, options)
    }

    #[test]
    fn profile_joins_both_files() {
        let credentials = "[default]\naws_access_key_id = A\naws_secret_access_key = s\\n+/=\n\
                           [ci]\naws_access_key_id=B\naws_secret_access_key=t\n\
                           aws_session_token=u\n";
        let config = "[default]\nregion = eu-west-1\n[profile ci]\nregion=us-west-2\n";
        let (_home, mut options) = options(credentials, config);
        let default = read_profile(&options, None).unwrap();
        assert_eq!(default.keys, Some(("A".into(), "s\\n+/=".into(), None)));
        assert_eq!(default.region.as_deref(), Some("eu-west-1"));
        let ci = read_profile(&options, Some("ci")).unwrap();
        assert_eq!(ci.keys, Some(("B".into(), "t".into(), Some("u".into()))));
        options.variables.insert("AWS_PROFILE".into(), "ci".into());
        assert_eq!(read_profile(&options, None).unwrap(), ci);
        let error = read_profile(&options, Some("absent")).unwrap_err();
        assert!(error.to_string().contains("\"absent\""), "{error}");
    }

    #[test]
    fn unsupported_sources_are_named() {
        let (_home, options) = options("", "[profile x]\ncredential_process = /bin/get\n");
        let why = read_profile(&options, Some("x"))
            .unwrap()
            .unsupported
            .unwrap();
        assert!(why.contains("credential_process"), "{why}");
        assert!(why.contains("export-credentials --profile x"), "{why}");
        assert_eq!(read_profile(&options, None).unwrap(), Profile::default());
    }

    #[test]
    fn invalid_file_is_an_error_without_its_text() {
        let (_home, options) = options("[default\naws_secret_access_key hidden", "");
        let error = read_profile(&options, None).unwrap_err().to_string();
        assert!(!error.contains("hidden"), "{error}");
    }
}
