//! The HTTP server, with limits for slow and for many clients.

use std::{convert::Infallible, pin::pin, time::Duration};

use axum::{
    Router,
    body::{Body, to_bytes},
    extract::{DefaultBodyLimit, Request, State},
    http::{HeaderValue, StatusCode, header::CONNECTION},
    middleware::{Next, from_fn_with_state},
    response::{IntoResponse as _, Response},
};
use hyper::{
    body::Incoming,
    server::conn::http1,
    service::{Service as _, service_fn},
};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::{net::TcpListener, time::timeout};

use crate::{
    Result,
    admission::{Free, Sender},
    stream::Patient,
};

/// Time after which a client closes an idle connection: before the server does, which would lose a
/// request.
const IDLE_MAX: Duration = Duration::from_secs(5);

/// Pause after a connection that the system has refused, for example because of too many files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Time in which the first request must arrive on a connection for which only a place for nodes is
/// free.
const NODE_PATIENCE: Duration = Duration::from_secs(1);

/// Begin of the paths of requests of nodes.
const NODE_PATHS: &str = "/raft/";

/// Value of the header that closes a connection.
const CLOSE: HeaderValue = HeaderValue::from_static("close");

/// Limits of connections.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Connections {
    /// Connections of clients at a time. Each takes a file, which the store may need.
    pub(crate) clients: usize,
    /// Further connections of nodes.
    pub(crate) nodes: usize,
    /// Time in which the head of the next request must arrive, and in which the client must read
    /// the next part of a response. Ends idle connections, too.
    pub(crate) patience: Duration,
}

/// Limits of the body of a request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) bytes: usize,
    /// Time in which it must arrive.
    pub(crate) patience: Duration,
}

/// Creates a client of nodes.
pub(crate) fn http_client() -> Result<reqwest::Client> {
    Ok(reqwest::Client::builder().no_proxy().pool_idle_timeout(IDLE_MAX).build()?)
}

/// Returns the body of `response`, or `None` if it has more than `bytes_max` bytes.
pub(crate) async fn read_answer(
    mut response: reqwest::Response,
    bytes_max: usize,
) -> reqwest::Result<Option<Vec<u8>>> {
    let mut body = Vec::new();
    while let Some(piece) = response.chunk().await? {
        body.extend_from_slice(&piece);
        if body.len() > bytes_max {
            return Ok(None);
        }
    }
    Ok(Some(body))
}

/// Answers requests on `listener` by `router`.
pub(crate) async fn serve_connections(
    listener: &TcpListener,
    router: Router,
    connections: Connections,
) {
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(connections.patience);
    let free = Free::new(connections.clients, connections.nodes);
    while let Ok(place) = free.place().await {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        // A response in two parts would wait for a delayed acknowledgement of the first one.
        let _ = stream.set_nodelay(true);
        let stream = TokioIo::new(Patient::new(stream, connections.patience));
        let (router, used) = (TowerToHyperService::new(router.clone()), place.clone());
        let service = service_fn(move |request: hyper::Request<Incoming>| {
            let is_node = request.uri().path().starts_with(NODE_PATHS);
            let admitted = place.admit(if is_node { Sender::Node } else { Sender::Client });
            let response = admitted.then(|| router.call(request));
            async move {
                let Some(response) = response else { return Ok(too_many_clients()) };
                let mut response = response.await?;
                if is_node && !response.status().is_success() {
                    // Only nodes keep places for nodes.
                    response.headers_mut().insert(CONNECTION, CLOSE);
                }
                Ok::<_, Infallible>(response)
            }
        });
        let connection = server.serve_connection(stream, service);
        tokio::spawn(async move {
            let mut connection = pin!(connection);
            if used.is_unused_of_node()
                && (timeout(NODE_PATIENCE, &mut connection).await.is_ok()
                    || used.is_unused_of_node())
            {
                return;
            }
            let _ = connection.await;
        });
    }
}

/// Returns status 503, and closes the connection.
fn too_many_clients() -> Response {
    let message = "this node has too many clients; try again";
    (StatusCode::SERVICE_UNAVAILABLE, [(CONNECTION, CLOSE)], message).into_response()
}

/// Returns `router` with limits of the bodies of requests.
pub(crate) fn limited<S: Clone + Send + Sync + 'static>(
    router: Router<S>,
    limits: Limits,
) -> Router<S> {
    router.layer(DefaultBodyLimit::disable()).layer(from_fn_with_state(limits, read_body))
}

/// Reads the body of a request before it is handled.
async fn read_body(State(limits): State<Limits>, request: Request, next: Next) -> Response {
    let (head, body) = request.into_parts();
    let Ok(body) = timeout(limits.patience, to_bytes(body, limits.bytes)).await else {
        let seconds = limits.patience.as_secs();
        let message = format!("the body did not arrive within {seconds} seconds");
        return (StatusCode::REQUEST_TIMEOUT, message).into_response();
    };
    match body {
        Ok(body) => next.run(Request::from_parts(head, Body::from(body))).await,
        // If the connection has failed, no client reads the response.
        Err(_) => {
            let message = format!("the body has more than {} bytes", limits.bytes);
            (StatusCode::PAYLOAD_TOO_LARGE, message).into_response()
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::routing::put;
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpStream,
    };

    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn slow_clients_do_not_keep_their_connections() -> Result<()> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let patience = Duration::from_millis(100);
        let router = Router::new()
            .route("/kv", put(|body: String| async { body }).get(|| async { vec![0; 64 << 20] }));
        let router = limited(router, Limits { bytes: 10, patience });
        let connections = Connections { clients: 2, nodes: 0, patience };
        tokio::spawn(async move { serve_connections(&listener, router, connections).await });

        // More connections than fit, without a request, without its end, without its body, and of
        // clients that do not read the response.
        let mut slow = Vec::new();
        let head = &b"PUT /kv HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\n"[..];
        let get = &b"GET /kv HTTP/1.1\r\nhost: a\r\n\r\n"[..];
        for part in [&b""[..], b"PUT /kv", head, head, b"", get, get] {
            let mut connection = TcpStream::connect(address).await?;
            connection.write_all(part).await?;
            slow.push(connection);
        }
        let url = format!("http://{address}/kv");
        let http = http_client()?;
        let answer = timeout(Duration::from_secs(60), http.put(&url).body("a").send()).await??;
        assert_eq!(answer.text().await?, "a");
        let mut answer = [0; 12];
        slow[2].read_exact(&mut answer).await?;
        assert_eq!(&answer[..], b"HTTP/1.1 408");
        let answer = http.put(&url).body("a".repeat(11)).send().await?;
        assert_eq!(answer.status(), StatusCode::PAYLOAD_TOO_LARGE);
        Ok(())
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn clients_do_not_keep_nodes_out() -> Result<()> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let patience = Duration::from_secs(3600);
        let router = Router::new()
            .route("/kv", put(|| async {}))
            .route("/raft/append", put(|| async { "appended" }));
        let connections = Connections { clients: 2, nodes: 1, patience };
        tokio::spawn(async move { serve_connections(&listener, router, connections).await });

        let mut clients = Vec::new();
        for _ in 0..connections.clients {
            let mut client = TcpStream::connect(address).await?;
            client.write_all(b"PUT /kv HTTP/1.1\r\nhost: a\r\n\r\n").await?;
            client.read_exact(&mut [0; 15]).await?;
            clients.push(client);
        }
        let http = http_client()?;
        let send = async |path: &str| {
            let request =
                http.put(format!("http://{address}{path}")).timeout(Duration::from_secs(60));
            request.send().await
        };
        assert_eq!(send("/kv").await?.status(), StatusCode::SERVICE_UNAVAILABLE);
        // One without a request has the place for nodes at first.
        let _idle = TcpStream::connect(address).await?;
        let mut forged = TcpStream::connect(address).await?;
        forged.write_all(b"PUT /raft/forged HTTP/1.1\r\nhost: a\r\n\r\n").await?;
        let mut answer = String::new();
        timeout(Duration::from_secs(60), forged.read_to_string(&mut answer)).await??;
        assert!(answer.starts_with("HTTP/1.1 404"), "{answer}");
        assert_eq!(send("/raft/append").await?.text().await?, "appended");
        clients.pop();
        while send("/kv").await?.status() != StatusCode::OK {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn an_answer_that_is_too_long_is_not_read() -> Result<()> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}", listener.local_addr()?);
        let router = Router::new().fallback(|| async { vec![b'a'; 1 << 20] });
        tokio::spawn(async move { axum::serve(listener, router).await });
        let http = http_client()?;
        assert_eq!(read_answer(http.get(&url).send().await?, (1 << 20) - 1).await?, None);
        let read = read_answer(http.get(&url).send().await?, 1 << 20).await?;
        assert_eq!(read.map(|body| body.len()), Some(1 << 20));
        Ok(())
    }
}
