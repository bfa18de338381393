//! Checks settings for object_store, which panics for texts that no request can have.

use std::path::Path;

use floe_store::read_regular_file;
use floe_transfer::url::redact_credentials;
use http::{HeaderValue, Uri};
use object_store::aws::AmazonS3ConfigKey as Key;

/// Checks that a request for credentials can be made of the settings. object_store panics if not.
pub(super) fn check_settings(settings: &[(Key, String)]) -> Result<(), String> {
    for (key, value) in settings {
        let url = match key {
            Key::ContainerCredentialsFullUri | Key::StsEndpoint => value.clone(),
            Key::ContainerCredentialsRelativeUri if !value.starts_with('/') => String::new(),
            Key::ContainerCredentialsRelativeUri => format!("http://localhost{value}"),
            // object_store reads it without a limit.
            Key::WebIdentityTokenFile => {
                read_token(value)?;
                continue;
            }
            Key::RoleArn if value.len() > ROLE_LEN_MAX => {
                return Err(format!(
                    "AWS_ROLE_ARN has more than {ROLE_LEN_MAX} characters; correct it"
                ));
            }
            Key::ContainerAuthorizationTokenFile => {
                let token = read_token(value)?;
                if HeaderValue::from_bytes(&token).is_err() {
                    return Err(format!(
                        "the token file {value} has characters that no header can have, such as a \
                         line break; remove them"
                    ));
                }
                continue;
            }
            _ => continue,
        };
        let is_absolute = |uri: &Uri| uri.scheme().is_some() && uri.authority().is_some();
        if !url.parse::<Uri>().is_ok_and(|uri| is_absolute(&uri)) {
            return Err(format!(
                "a credentials service has the invalid address {:?}; correct {}",
                redact_credentials(value),
                variable_of(key)
            ));
        }
    }
    Ok(())
}

/// Reads a file with a token for a service of credentials.
fn read_token(file: &str) -> Result<Vec<u8>, String> {
    read_regular_file(Path::new(file), TOKEN_LEN_MAX)
        .map_err(|error| format!("cannot read the token file {file}: {error}"))
}

/// Returns the environment variable of an address.
fn variable_of(key: &Key) -> &'static str {
    match key {
        Key::StsEndpoint => "AWS_ENDPOINT_URL_STS",
        Key::ContainerCredentialsRelativeUri => "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
        _ => "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    }
}

/// The largest token file, in bytes. A request for credentials has the token in its URL.
const TOKEN_LEN_MAX: u64 = 16 * 1024;

/// The longest name of a role, in bytes, which is that of AWS.
const ROLE_LEN_MAX: usize = 2048;
