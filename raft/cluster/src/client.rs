//! Requests of a client to one node.

use std::{error::Error, fmt, time::Duration};

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::{RequestBuilder, StatusCode, redirect};

use crate::{Result, clients::CompareAndSet, describe, map::Response};

/// Reason for the failure of a request.
#[derive(Debug)]
pub enum Failure {
    /// The request had no effect: the node cannot be reached, or does not lead.
    NoEffect(String),
    /// The node has refused the request, with a status from 400 to 499. It had no effect.
    Refused(u16, String),
    /// The request may have an effect, now or later.
    Unknown(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoEffect(reason) => write!(f, "no effect: {reason}"),
            Self::Refused(status, reason) => write!(f, "refused with status {status}: {reason}"),
            Self::Unknown(reason) => write!(f, "unknown effect: {reason}"),
        }
    }
}

impl Error for Failure {}

/// A client of one node.
#[derive(Debug, Clone)]
pub struct Client {
    http: reqwest::Client,
    url: String,
}

impl Client {
    /// Creates a client of the node at `url`, such as `http://127.0.0.1:7001`.
    ///
    /// # Errors
    ///
    /// If the system has no random numbers.
    pub fn new(url: &str, timeout: Duration) -> Result<Self> {
        let http = reqwest::Client::builder()
            .redirect(redirect::Policy::none())
            .timeout(timeout)
            .no_proxy()
            .build()?;
        Ok(Self { http, url: url.to_owned() })
    }

    /// Returns the value of `key`, by a linearizable read.
    ///
    /// # Errors
    ///
    /// [`Failure`].
    pub async fn get(&self, key: &str) -> Result<Option<String>, Failure> {
        self.read(&self.url_of("kv", key)?).await
    }

    /// Returns the value of `key` that this node has, which may be outdated.
    ///
    /// # Errors
    ///
    /// [`Failure`].
    pub async fn get_local(&self, key: &str) -> Result<Option<String>, Failure> {
        self.read(&format!("{}?local=true", self.url_of("kv", key)?)).await
    }

    async fn read(&self, url: &str) -> Result<Option<String>, Failure> {
        match self.send(self.http.get(url)).await {
            Ok(value) => Ok(Some(value)),
            Err(Failure::Refused(404, _)) => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    /// Returns the URL of a key. A path has no segment that is empty, `.` or `..`.
    fn url_of(&self, kind: &str, key: &str) -> Result<String, Failure> {
        if ["", ".", ".."].contains(&key) {
            return Err(Failure::NoEffect(format!("the key {key:?} is no part of a URL")));
        }
        Ok(format!("{}/{kind}/{}", self.url, utf8_percent_encode(key, NON_ALPHANUMERIC)))
    }

    /// Stores a value.
    ///
    /// # Errors
    ///
    /// [`Failure`].
    pub async fn put(&self, key: &str, value: &str) -> Result<Response, Failure> {
        response(self.send(self.http.put(self.url_of("kv", key)?).body(value.to_owned())).await)
    }

    /// Stores a value if the present one is `expected`.
    ///
    /// # Errors
    ///
    /// [`Failure`].
    pub async fn compare_and_set(
        &self,
        key: &str,
        expected: Option<&str>,
        value: &str,
    ) -> Result<Response, Failure> {
        let expected = expected.map(str::to_owned);
        let body = CompareAndSet { expected, value: value.to_owned() };
        response(self.send(self.http.post(self.url_of("cas", key)?).json(&body)).await)
    }

    /// Sends a request to `path`, and returns the body of the response.
    ///
    /// # Errors
    ///
    /// [`Failure`].
    pub async fn call(&self, method: &str, path: &str, body: &str) -> Result<String, Failure> {
        let method = method.parse().map_err(|_| Failure::NoEffect("method".to_owned()))?;
        let request = self.http.request(method, format!("{}{path}", self.url));
        let request = request.header("content-type", "application/json").body(body.to_owned());
        self.send(request).await
    }

    async fn send(&self, request: RequestBuilder) -> Result<String, Failure> {
        let response = request.send().await.map_err(|error| {
            let connected = !error.is_connect();
            let text = describe(&error);
            if connected { Failure::Unknown(text) } else { Failure::NoEffect(text) }
        })?;
        let status = response.status();
        let body = response.text().await.map_err(|error| Failure::Unknown(describe(&error)))?;
        match status {
            StatusCode::TEMPORARY_REDIRECT | StatusCode::SERVICE_UNAVAILABLE => {
                Err(Failure::NoEffect(body))
            }
            status if status.is_success() => Ok(body),
            status if status.is_client_error() => Err(Failure::Refused(status.as_u16(), body)),
            status => Err(Failure::Unknown(format!("{status}: {body}"))),
        }
    }
}

/// Decodes the response to a write. Status 409 means that a comparison has failed.
fn response(result: Result<String, Failure>) -> Result<Response, Failure> {
    let body = match result {
        Ok(body) | Err(Failure::Refused(409, body)) => body,
        Err(failure) => return Err(failure),
    };
    serde_json::from_str(&body).map_err(|error| Failure::Unknown(error.to_string()))
}
