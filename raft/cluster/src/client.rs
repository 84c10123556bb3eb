//! Requests of a client to one node.

use std::time::Duration;

use reqwest::{RequestBuilder, StatusCode, redirect};

use crate::{Result, map::Response, node::CompareAndSet};

/// Why a request failed.
#[derive(Debug)]
pub enum Failure {
    /// The request had no effect: the node cannot be reached, or does not lead.
    NoEffect(String),
    /// The request may have an effect, now or later.
    Unknown(String),
}

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
        let (status, body) = self.send(self.http.get(format!("{}/kv/{key}", self.url))).await?;
        Ok((status == StatusCode::OK).then_some(body))
    }

    /// Stores a value.
    ///
    /// # Errors
    ///
    /// [`Failure`].
    pub async fn put(&self, key: &str, value: &str) -> Result<Response, Failure> {
        let request = self.http.put(format!("{}/kv/{key}", self.url)).body(value.to_owned());
        response(&self.send(request).await?.1)
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
        let request = self.http.post(format!("{}/cas/{key}", self.url)).json(&body);
        response(&self.send(request).await?.1)
    }

    /// Sends a request without a body to `path`, and returns the body of the response.
    ///
    /// # Errors
    ///
    /// [`Failure`].
    pub async fn call(&self, method: &str, path: &str, body: &str) -> Result<String, Failure> {
        let method = method.parse().map_err(|_| Failure::NoEffect("method".to_owned()))?;
        let request = self.http.request(method, format!("{}{path}", self.url));
        let request = request.header("content-type", "application/json").body(body.to_owned());
        Ok(self.send(request).await?.1)
    }

    async fn send(&self, request: RequestBuilder) -> Result<(StatusCode, String), Failure> {
        let response = request.send().await.map_err(|error| {
            let connected = !error.is_connect();
            let text = error.to_string();
            if connected { Failure::Unknown(text) } else { Failure::NoEffect(text) }
        })?;
        let status = response.status();
        let body = response.text().await.map_err(|error| Failure::Unknown(error.to_string()))?;
        match status {
            StatusCode::TEMPORARY_REDIRECT | StatusCode::SERVICE_UNAVAILABLE => {
                Err(Failure::NoEffect(body))
            }
            status if status.is_success() => Ok((status, body)),
            StatusCode::NOT_FOUND | StatusCode::CONFLICT => Ok((status, body)),
            status => Err(Failure::Unknown(format!("{status}: {body}"))),
        }
    }
}

fn response(body: &str) -> Result<Response, Failure> {
    serde_json::from_str(body).map_err(|error| Failure::Unknown(error.to_string()))
}
