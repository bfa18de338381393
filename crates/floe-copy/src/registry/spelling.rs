//! Advice for texts that name no store that floe can use: the nearest valid spelling.

/// Returns the reason why a text without `://` names no store.
pub(super) fn of_text(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once(':') else {
        return of_relative_path(text);
    };
    let address = rest.trim_start_matches('/');
    match scheme {
        "http" | "https" => format!("a host follows ://; use {scheme}://{address}"),
        "cachix" => format!("unknown scheme; use https://{address}.cachix.org"),
        "local" | "path" if rest.starts_with('/') => format!("unknown scheme; use {rest}"),
        "local" | "path" => format!("unknown scheme; use ./{rest}"),
        _ if is_port(rest) => format!("it has no scheme; use http://{text} or https://{text}"),
        _ => of_scheme(scheme),
    }
}

/// Returns the reason why floe cannot use a scheme.
pub(super) fn of_scheme(scheme: &str) -> String {
    let reason = match scheme {
        "mounted-ssh-ng" => "floe does not support mounted stores; use ssh-ng://HOST",
        "ssh" | "ssh-ng" => "a host follows ://; use ssh-ng://HOST",
        "unix" => "a path follows ://; use unix:///SOCKET",
        "s3" if cfg!(feature = "s3") => "a bucket follows ://; use s3://BUCKET",
        "s3" => "this build has no support of S3; use the program floe, or read it by https://",
        "gs" | "az" => {
            "floe does not support this object store; use s3:// with its endpoint if it has one, \
             or copy to file://DIR and upload that directory"
        }
        "dummy" | "local-overlay" => "floe does not support such stores; use a directory",
        _ => "unknown scheme; use http://, https://, file:// or a directory",
    };
    reason.into()
}

fn of_relative_path(text: &str) -> String {
    let cause = "it is neither a URI nor a directory that exists";
    let first = text.split('/').next().unwrap_or_default();
    if text.contains('@') && !text.contains('/') {
        return format!("{cause}; use ssh-ng://{text} for another machine");
    }
    if first.trim_matches('.').contains('.') {
        format!("{cause}; use https://{text} for a binary cache, or ./{text}")
    } else if text.contains('/') {
        format!("{cause}; use ./{text} for a new directory")
    } else {
        format!("{cause}; use ./{text} for a new directory, or ssh-ng://{text} for another machine")
    }
}

/// Whether the text after a colon begins with the port of a host.
fn is_port(rest: &str) -> bool {
    let port = rest.split('/').next().unwrap_or_default();
    !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit())
}
