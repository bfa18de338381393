//! Where credentials come from, in the order of the AWS tools: the environment, a profile, a web
//! identity, the container, the instance. Without any, requests are not signed, and the bucket must
//! be public.

mod check;

use std::fmt::{self, Debug};
use std::sync::Arc;

use floe_transfer::Error;
use object_store::aws::{
    AmazonS3Builder, AmazonS3ConfigKey as Key, AwsCredential, AwsCredentialProvider,
};
use tokio::sync::OnceCell;

use super::connector::{Cause, Connector, no_retries};
use super::profile::{Profile, read_profile};
use crate::error::CacheError;
use crate::service_environment::ServiceEnvironment;
use check::check_settings;

/// The credentials of one cache.
pub(super) struct Credentials {
    source: Source,
    /// The provider, once the first request needs it; `None` means anonymous.
    provider: OnceCell<Option<AwsCredentialProvider>>,
}

/// The settings of a provider.
type Settings = Vec<(Key, String)>;

enum Source {
    /// A provider whose failure is an error.
    Named(Settings),
    /// The metadata service of the instance, if there is one.
    Instance,
    /// The user has ruled out that service.
    Anonymous,
}

impl Credentials {
    /// Finds the source of credentials, and the region that the environment or the profile names.
    /// Reads files, and sends nothing. Only a bucket of Amazon has those of the instance.
    ///
    /// Errors: [`CacheError::Credentials`].
    pub(super) fn find(
        options: &ServiceEnvironment,
        (wanted, is_amazon): (Option<&str>, bool),
    ) -> Result<(Credentials, Option<String>), CacheError> {
        let profile = read_profile(options, wanted);
        let of_profile = profile
            .as_ref()
            .ok()
            .and_then(|profile| profile.region.clone());
        let variable = |name| options.variable(name).map(str::to_owned);
        let of_environment = variable("AWS_REGION").or_else(|| variable("AWS_DEFAULT_REGION"));
        let region = match wanted {
            Some(_) => of_profile.or(of_environment),
            None => of_environment.or(of_profile),
        };
        let source = match choose(options, wanted, profile)? {
            Source::Instance if !is_amazon => Source::Anonymous,
            source => source,
        };
        let credentials = Credentials {
            source,
            provider: OnceCell::new(),
        };
        Ok((credentials, region))
    }

    /// Whether requests have no signature, because there are no credentials.
    pub(super) fn are_anonymous(&self) -> bool {
        matches!(self.provider.get(), Some(None))
    }

    /// Returns valid credentials; `None` for a request without signature.
    ///
    /// Errors: [`CacheError::Credentials`].
    pub(super) async fn get(
        &self,
        region: &str,
        connector: &Connector,
    ) -> Result<Option<Arc<AwsCredential>>, Error> {
        let provider = self.provider.get_or_try_init(async || match &self.source {
            Source::Anonymous => Ok(None),
            Source::Named(settings) => provider(settings, region, connector).map(Some),
            Source::Instance => {
                let provider = provider(&[], region, connector)?;
                match provider.get_credential().await.map_err(Cause::from) {
                    // Without the service there are no credentials at all.
                    Err(cause) if cause.is_without_reply => Ok(None),
                    Err(cause) => Err(failed(cause)),
                    Ok(_) => Ok(Some(provider)),
                }
            }
        });
        let Some(provider) = provider.await? else {
            return Ok(None);
        };
        let credential = provider.get_credential().await;
        let credential = credential.map_err(|error| failed(error.into()))?;
        let texts = [Some(&credential.key_id), credential.token.as_ref()];
        let are_valid = texts.into_iter().flatten().all(|text| is_header_text(text));
        if are_valid {
            Ok(Some(credential))
        } else {
            Err(failed(Cause {
                reason: "a key or a token has characters that no header can have".into(),
                transient: false,
                is_without_reply: false,
            }))
        }
    }
}

impl Debug for Credentials {
    /// Prints nothing that may be secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials")
    }
}

/// Whether a text can be a part of a header.
fn is_header_text(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_graphic())
}

fn failed(cause: Cause) -> Error {
    let Cause {
        reason, transient, ..
    } = cause;
    CacheError::Credentials { reason, transient }.into()
}

fn provider(
    settings: &[(Key, String)],
    region: &str,
    connector: &Connector,
) -> Result<AwsCredentialProvider, Error> {
    check_settings(settings).map_err(CacheError::credentials)?;
    let mut builder = AmazonS3Builder::new()
        .with_http_connector(connector.clone())
        .with_retry(no_retries())
        .with_region(region)
        .with_bucket_name("unused");
    for (key, value) in settings {
        builder = builder.with_config(*key, value);
    }
    let store = builder.build().map_err(|error| failed(error.into()))?;
    Ok(store.credentials().clone())
}

/// Chooses the first source that has something. A profile that the URI names comes first.
fn choose(
    options: &ServiceEnvironment,
    wanted: Option<&str>,
    profile: Result<Profile, CacheError>,
) -> Result<Source, CacheError> {
    let of_environment = match wanted {
        Some(_) => None,
        None => environment(options)?,
    };
    let first = match of_environment {
        // A profile that cannot be used does not matter then.
        Some(settings) => Some(settings),
        None => of_profile(profile?)?,
    };
    if wanted.is_some() && first.is_none() {
        return Err(CacheError::credentials("the profile has no credentials"));
    }
    let named = match first {
        Some(settings) => Some(settings),
        None => of_web_identity(options)?,
    };
    let named = match named {
        Some(settings) => Some(settings),
        None => of_container(options)?,
    };
    let is_ruled_out = options
        .variable("AWS_EC2_METADATA_DISABLED")
        .is_some_and(|value| value.eq_ignore_ascii_case("true"));
    Ok(match named {
        Some(settings) => Source::Named(settings),
        None if is_ruled_out => Source::Anonymous,
        None => Source::Instance,
    })
}

fn of_web_identity(options: &ServiceEnvironment) -> Result<Option<Settings>, CacheError> {
    let found = all_of(
        options,
        &[
            (Key::WebIdentityTokenFile, "AWS_WEB_IDENTITY_TOKEN_FILE"),
            (Key::RoleArn, "AWS_ROLE_ARN"),
        ],
    )?;
    Ok(found.map(|mut settings| {
        settings.extend(any_of(
            options,
            &[
                (Key::RoleSessionName, "AWS_ROLE_SESSION_NAME"),
                (Key::StsEndpoint, "AWS_ENDPOINT_URL_STS"),
            ],
        ));
        settings
    }))
}

fn of_container(options: &ServiceEnvironment) -> Result<Option<Settings>, CacheError> {
    let relative = (
        Key::ContainerCredentialsRelativeUri,
        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    );
    if let Some(settings) = all_of(options, &[relative])? {
        return Ok(Some(settings));
    }
    all_of(
        options,
        &[
            (
                Key::ContainerCredentialsFullUri,
                "AWS_CONTAINER_CREDENTIALS_FULL_URI",
            ),
            (
                Key::ContainerAuthorizationTokenFile,
                "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
            ),
        ],
    )
}

fn of_profile(profile: Profile) -> Result<Option<Settings>, CacheError> {
    let keys = profile.keys.map(|(key, secret, token)| {
        let mut settings = vec![(Key::AccessKeyId, key), (Key::SecretAccessKey, secret)];
        settings.extend(token.map(|token| (Key::Token, token)));
        settings
    });
    let web_identity = || {
        let (role, file) = profile.web_identity?;
        Some(vec![
            (Key::RoleArn, role),
            (Key::WebIdentityTokenFile, file),
        ])
    };
    match (keys.or_else(web_identity), profile.unsupported) {
        (None, Some(reason)) => Err(CacheError::credentials(reason)),
        (settings, _) => Ok(settings),
    }
}

/// Returns the keys in the environment.
fn environment(options: &ServiceEnvironment) -> Result<Option<Settings>, CacheError> {
    let variables = [
        (Key::AccessKeyId, "AWS_ACCESS_KEY_ID"),
        (Key::SecretAccessKey, "AWS_SECRET_ACCESS_KEY"),
    ];
    let found = any_of(options, &variables);
    let missing = match found.len() {
        0 => return Ok(None),
        1 if found[0].0 == Key::AccessKeyId => "AWS_SECRET_ACCESS_KEY",
        1 => "AWS_ACCESS_KEY_ID",
        _ => {
            let token = any_of(options, &[(Key::Token, "AWS_SESSION_TOKEN")]);
            return Ok(Some([found, token].concat()));
        }
    };
    Err(CacheError::credentials(format!(
        "the environment has only one half of a key; set {missing} too"
    )))
}

fn any_of(options: &ServiceEnvironment, variables: &[(Key, &str)]) -> Settings {
    let found = variables.iter().filter_map(|(key, name)| {
        // A value from a file often ends with a line break.
        let value = options.variable(name)?.trim();
        Some((*key, value.to_owned()))
    });
    found.collect()
}

/// Returns the values of some variables, or `None` without the first of them.
///
/// Errors: [`CacheError::Credentials`] if another one is missing. The AWS tools would use the
/// service, so requests without signature are not what the user expects.
fn all_of(
    options: &ServiceEnvironment,
    variables: &[(Key, &str)],
) -> Result<Option<Settings>, CacheError> {
    let missing = variables
        .iter()
        .position(|(_, name)| options.variable(name).is_none());
    match missing {
        None => Ok(Some(any_of(options, variables))),
        Some(0) => Ok(None),
        Some(missing) => Err(CacheError::credentials(format!(
            "floe uses {} only with {name}; set {name} too, or unset the first",
            variables[0].1,
            name = variables[missing].1
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(variables: &[(&str, &str)], wanted: Option<&str>, profile: &Profile) -> Source {
        let variables = variables.iter();
        let options = ServiceEnvironment {
            variables: variables
                .map(|(name, value)| ((*name).into(), (*value).into()))
                .collect(),
            home: None,
        };
        choose(&options, wanted, Ok(profile.clone())).unwrap()
    }

    #[test]
    fn sources_are_tried_in_the_order_of_the_aws_tools() {
        let keys = [("AWS_ACCESS_KEY_ID", "A"), ("AWS_SECRET_ACCESS_KEY", "s")];
        let web = [("AWS_WEB_IDENTITY_TOKEN_FILE", "/t"), ("AWS_ROLE_ARN", "r")];
        let of_profile = Profile {
            keys: Some(("P".into(), "q".into(), None)),
            ..Profile::default()
        };
        let first_value = |source: Source| match source {
            Source::Named(settings) => settings[0].1.clone(),
            Source::Instance => "Instance".into(),
            Source::Anonymous => "Anonymous".into(),
        };
        let all = [keys, web].concat();
        let none = Profile::default();
        for (variables, wanted, profile, expected) in [
            (&all[..], None, &of_profile, "A"),
            (&all, Some("ci"), &of_profile, "P"),
            (&web, None, &of_profile, "P"),
            (&web, None, &none, "/t"),
            (
                &[("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "/c")],
                None,
                &none,
                "/c",
            ),
            (&[], None, &none, "Instance"),
            (
                &[("AWS_EC2_METADATA_DISABLED", "true")],
                None,
                &none,
                "Anonymous",
            ),
        ] {
            assert_eq!(first_value(chosen(variables, wanted, profile)), expected);
        }
    }

    #[test]
    fn half_of_a_key_is_an_error() {
        let variables = [("AWS_ACCESS_KEY_ID".to_owned(), "A".to_owned())];
        let options = ServiceEnvironment {
            variables: variables.into(),
            home: None,
        };
        let error = choose(&options, None, Ok(Profile::default()))
            .err()
            .unwrap();
        let text = error.to_string();
        assert!(text.contains("set AWS_SECRET_ACCESS_KEY too"), "{text}");
    }

    #[test]
    fn incomplete_service_is_an_error() {
        for (set, missing) in [
            ("AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_ROLE_ARN"),
            (
                "AWS_CONTAINER_CREDENTIALS_FULL_URI",
                "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
            ),
        ] {
            let options = ServiceEnvironment {
                variables: [(set.to_owned(), "/x".to_owned())].into(),
                home: None,
            };
            let error = choose(&options, None, Ok(Profile::default())).err();
            let text = error.unwrap().to_string();
            assert!(text.contains(&format!("set {missing} too")), "{text}");
        }
    }

    #[test]
    fn settings_without_a_request_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str, token: &str| {
            let path = directory.path().join(name);
            std::fs::write(&path, token).unwrap();
            path.display().to_string()
        };
        for (key, value, is_usable) in [
            (
                Key::ContainerCredentialsFullUri,
                "http://[::1]/c".into(),
                true,
            ),
            (
                Key::ContainerCredentialsFullUri,
                "localhost/c".into(),
                false,
            ),
            (Key::ContainerCredentialsRelativeUri, "/c".into(), true),
            (Key::ContainerCredentialsRelativeUri, "/c d".into(), false),
            (Key::ContainerCredentialsRelativeUri, "c".into(), false),
            (Key::StsEndpoint, "https://sts.example.org".into(), true),
            (Key::StsEndpoint, "https://sts example".into(), false),
            (
                Key::ContainerAuthorizationTokenFile,
                file("good", "Bearer t"),
                true,
            ),
            (
                Key::ContainerAuthorizationTokenFile,
                file("bad", "t\n"),
                false,
            ),
            (
                Key::ContainerAuthorizationTokenFile,
                "/nonexistent".into(),
                false,
            ),
        ] {
            let checked = check_settings(&[(key, value)]);
            assert_eq!(checked.is_ok(), is_usable, "{checked:?}");
        }
    }

    #[test]
    fn keys_in_the_environment_need_no_usable_profile() {
        let unusable = || Profile {
            unsupported: Some("single sign-on".into()),
            ..Profile::default()
        };
        let variables = [("AWS_ACCESS_KEY_ID", "A"), ("AWS_SECRET_ACCESS_KEY", "s\n")];
        let source = chosen(&variables, None, &unusable());
        assert!(matches!(source, Source::Named(found) if found[1].1 == "s"));
        let error = choose(&ServiceEnvironment::default(), None, Ok(unusable()));
        assert!(error.err().unwrap().to_string().contains("single sign-on"));
    }
}
