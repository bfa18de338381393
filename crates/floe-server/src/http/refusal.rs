//! The reasons why the server refuses a request.

/// The reason why a client does not get the response that it requests, whatever the store has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The head is not one of HTTP/1.
    MalformedHead,
    /// The path of the target is not UTF-8.
    InvalidTarget,
    /// There is no field `Host` in HTTP/1.1, or more than one.
    InvalidHost,
    /// `Content-Length` is not a number.
    InvalidBodyLength,
    /// There are two lengths, or a length beside `Transfer-Encoding`.
    AmbiguousBodyLength,
    /// The request has no login, and needs one.
    LoginRequired,
    /// The login does not exist, or the password is wrong.
    LoginFailed,
    /// The login has expired.
    LoginExpired,
    /// The login may not request this.
    MissingScope,
    /// The server does not support the method.
    MethodNotAllowed,
    /// The server does not receive, or does not delete, an object of this name.
    NotReceived,
    /// The body has a coding that the server does not know.
    UnsupportedBody,
    /// The rest of the head did not come in time.
    HeadTimeout,
    /// The first line is too long.
    RequestLineTooLong,
    /// The header fields are too long.
    HeadTooLong,
    /// There are too many header fields.
    TooManyFields,
    /// Too many logins of the address have failed.
    TooManyLogins,
    /// Too many passwords wait to be verified.
    LoginQueueFull,
    /// The address of the client has too many connections.
    AddressLimit,
    /// All connections of the server are in use.
    ConnectionLimit,
    /// All decoders for build logs are in use.
    LogDecoderLimit,
    /// The client speaks HTTP to a port for TLS.
    PlainHttp,
    /// The client shows no certificate, or none that the server accepts.
    ClientCertificate,
    /// The TLS handshake fails, or a record is invalid.
    TlsProtocol,
    /// The TLS handshake was not complete in time.
    TlsTimeout,
    /// A trusted proxy sends no valid header of the PROXY protocol, or not in time.
    ProxyHeader,
}

impl Refusal {
    /// All reasons, in the order of their numbers.
    pub const ALL: [Refusal; 26] = [
        Refusal::MalformedHead,
        Refusal::InvalidTarget,
        Refusal::InvalidHost,
        Refusal::InvalidBodyLength,
        Refusal::AmbiguousBodyLength,
        Refusal::LoginRequired,
        Refusal::LoginFailed,
        Refusal::LoginExpired,
        Refusal::MissingScope,
        Refusal::MethodNotAllowed,
        Refusal::NotReceived,
        Refusal::UnsupportedBody,
        Refusal::HeadTimeout,
        Refusal::RequestLineTooLong,
        Refusal::HeadTooLong,
        Refusal::TooManyFields,
        Refusal::TooManyLogins,
        Refusal::LoginQueueFull,
        Refusal::AddressLimit,
        Refusal::ConnectionLimit,
        Refusal::LogDecoderLimit,
        Refusal::PlainHttp,
        Refusal::ClientCertificate,
        Refusal::TlsProtocol,
        Refusal::TlsTimeout,
        Refusal::ProxyHeader,
    ];

    /// Returns the status of the response.
    pub fn status(self) -> u16 {
        match self {
            Refusal::MalformedHead
            | Refusal::InvalidTarget
            | Refusal::InvalidHost
            | Refusal::InvalidBodyLength
            | Refusal::AmbiguousBodyLength
            | Refusal::PlainHttp
            | Refusal::ClientCertificate
            | Refusal::TlsProtocol
            | Refusal::ProxyHeader => 400,
            Refusal::LoginRequired | Refusal::LoginFailed | Refusal::LoginExpired => 401,
            Refusal::MissingScope | Refusal::NotReceived => 403,
            Refusal::MethodNotAllowed => 405,
            Refusal::UnsupportedBody => 415,
            Refusal::HeadTimeout | Refusal::TlsTimeout => 408,
            Refusal::RequestLineTooLong => 414,
            Refusal::HeadTooLong | Refusal::TooManyFields => 431,
            Refusal::TooManyLogins | Refusal::LoginQueueFull => 429,
            Refusal::AddressLimit | Refusal::ConnectionLimit | Refusal::LogDecoderLimit => 503,
        }
    }

    /// Returns the name of the reason, one word for logs.
    pub fn name(self) -> &'static str {
        match self {
            Refusal::MalformedHead => "malformedHead",
            Refusal::InvalidTarget => "invalidTarget",
            Refusal::InvalidHost => "invalidHost",
            Refusal::InvalidBodyLength => "invalidBodyLength",
            Refusal::AmbiguousBodyLength => "ambiguousBodyLength",
            Refusal::LoginRequired => "loginRequired",
            Refusal::LoginFailed => "loginFailed",
            Refusal::LoginExpired => "loginExpired",
            Refusal::MissingScope => "missingScope",
            Refusal::MethodNotAllowed => "methodNotAllowed",
            Refusal::NotReceived => "notReceived",
            Refusal::UnsupportedBody => "unsupportedBody",
            Refusal::HeadTimeout => "headTimeout",
            Refusal::RequestLineTooLong => "requestLineTooLong",
            Refusal::HeadTooLong => "headTooLong",
            Refusal::TooManyFields => "tooManyFields",
            Refusal::TooManyLogins => "tooManyLogins",
            Refusal::LoginQueueFull => "loginQueueFull",
            Refusal::AddressLimit => "addressLimit",
            Refusal::ConnectionLimit => "connectionLimit",
            Refusal::LogDecoderLimit => "logDecoderLimit",
            Refusal::PlainHttp => "plainHttp",
            Refusal::ClientCertificate => "clientCertificate",
            Refusal::TlsProtocol => "tlsProtocol",
            Refusal::TlsTimeout => "tlsTimeout",
            Refusal::ProxyHeader => "proxyHeader",
        }
    }
}
