//! One connection: requests in, responses out in the order of the requests.
//!
//! ```text
//! socket -> Frames -> Service::start -> Beside: waits among the pending while the next requests start
//!                                    -> Alone:  starts when all before it are answered, nothing starts meanwhile
//! front of the pending -> Output -> socket
//! ```
//! Everything happens in this task. A request that waits (for replicas, or for records to come) is a future that is
//! polled here; when the client leaves, it is dropped.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::BytesMut;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::error::Elapsed;
use tokio::time::timeout_at;

use super::frames::{FrameError, Frames};
use super::output::{Output, OutputError, Response};
use crate::net::BoxFuture;
use crate::types::time;

/// Requests that may wait at once; then the socket is not read.
const PIPELINE_MAX: usize = 64;

/// Bytes that are read ahead while a request is served alone.
const READ_AHEAD_MAX: usize = 64 << 10;

/// A request that has begun to come must be here by then, however slowly it trickles.
const FRAME_TIMEOUT: Duration = Duration::from_secs(60);

/// A connection without a request for so long gives its buffers back.
const QUIET_AFTER: Duration = Duration::from_secs(10);

/// What a connection does with its requests.
pub(super) trait Service: Send + 'static {
    fn start(&mut self, frame: BytesMut) -> Started;
}

pub(super) type Work = BoxFuture<'static, Answer>;

/// How a request is to be finished.
pub(super) enum Started {
    /// It has taken effect; later requests need not wait for its answer.
    Beside(Work),
    /// It takes effect when it is polled, after every earlier one was answered.
    Alone(Work),
    /// It is none: the connection ends, for this reason.
    Close(String),
}

pub(super) enum Answer {
    Response(Response),
    /// A request that wants no response.
    Silence,
    /// The connection ends, for this reason: the client has no other way to learn it.
    Close(String),
}

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum Ended {
    #[error("the client left")]
    ByClient,
    #[error("this node is stopping")]
    Stopping,
    #[error("no request for connections.max.idle.ms={}", .0.as_millis())]
    Idle(Duration),
    #[error("a request took longer than {FRAME_TIMEOUT:?} to arrive")]
    Slow,
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Output(#[from] OutputError),
    #[error(transparent)]
    Frame(#[from] FrameError),
    #[error("{0}")]
    Refused(String),
}

pub(super) struct Connection<S> {
    stream: TcpStream,
    frames: Frames,
    output: Output,
    pending: VecDeque<Work>,
    service: S,
    idle_max: Duration,
    shutdown: watch::Receiver<bool>,
    /// When the last whole request came.
    last_request: Instant,
    /// When the request that is not whole yet began to come.
    partial_since: Option<Instant>,
}

impl<S: Service> Connection<S> {
    pub(super) fn new(
        stream: TcpStream,
        frames: Frames,
        service: S,
        idle_max: Duration,
        shutdown: watch::Receiver<bool>,
    ) -> Self {
        let output = Output::new(idle_max);
        let pending = VecDeque::new();
        let (last_request, partial_since) = (time::now(), None);
        Self {
            stream,
            frames,
            output,
            pending,
            service,
            idle_max,
            shutdown,
            last_request,
            partial_since,
        }
    }

    /// Serves until something ends it.
    pub(super) async fn run(mut self) -> Ended {
        loop {
            if let Err(ended) = self.turn().await {
                // What was answered before that is true whatever follows.
                let _ = self.output.flush(&mut self.stream).await;
                return ended;
            }
        }
    }

    /// Starts what is here, answers what is done, then waits for more of either.
    async fn turn(&mut self) -> Result<(), Ended> {
        while self.pending.len() < PIPELINE_MAX
            && let Some(frame) = self.frames.next()?
        {
            self.last_request = time::now();
            self.partial_since = None;
            match self.service.start(frame) {
                Started::Beside(work) => self.pending.push_back(work),
                Started::Alone(work) => {
                    self.answer_pending().await?;
                    self.serve_alone(work).await?;
                }
                Started::Close(reason) => {
                    self.answer_pending().await?;
                    return Err(Ended::Refused(reason));
                }
            }
        }
        if let Some(answer) = self.ready_answer() {
            return self.answer(answer).await;
        }
        self.output.flush(&mut self.stream).await?;
        self.wait().await
    }

    /// Waits until the front of the pending is answered or bytes come.
    async fn wait(&mut self) -> Result<(), Ended> {
        let now = time::now();
        let idle_at = self.last_request + self.idle_max;
        let quiet_at = self.last_request + QUIET_AFTER;
        let mut deadline = idle_at;
        if self.frames.is_partial() {
            deadline = *self.partial_since.get_or_insert(now) + FRAME_TIMEOUT;
        } else if !self.pending.is_empty() {
            deadline = now + self.idle_max;
        } else if now < quiet_at {
            deadline = quiet_at.min(idle_at);
        }
        let fill = timeout_at(deadline.into(), self.frames.fill(&mut self.stream));
        let event = tokio::select! {
            biased;
            answer = front_answer(&mut self.pending) => Event::Answer(answer),
            _ = self.shutdown.wait_for(|stop| *stop), if self.pending.is_empty() => Event::Stop,
            read = fill, if self.pending.len() < PIPELINE_MAX => Event::Read(read),
        };
        let read = match event {
            Event::Answer(answer) => return self.answer(answer).await,
            Event::Stop => return Err(Ended::Stopping),
            Event::Read(read) => read,
        };
        match read {
            Ok(Ok(0)) => Err(Ended::ByClient),
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(error.into()),
            Err(_) if self.frames.is_partial() => Err(Ended::Slow),
            Err(_) if time::now() >= idle_at && self.pending.is_empty() => {
                Err(Ended::Idle(self.idle_max))
            }
            Err(_) => {
                self.frames.release();
                Ok(())
            }
        }
    }

    /// Serves one request while nothing else is. Reads on a little, to notice when the client leaves.
    async fn serve_alone(&mut self, mut work: Work) -> Result<(), Ended> {
        if let Poll::Ready(answer) = poll_now(&mut work) {
            return self.answer(answer).await;
        }
        self.output.flush(&mut self.stream).await?;
        let answer = loop {
            let may_read = self.frames.waiting() < READ_AHEAD_MAX;
            let read = tokio::select! {
                biased;
                answer = &mut work => break answer,
                _ = self.shutdown.wait_for(|stop| *stop) => return Err(Ended::Stopping),
                read = self.frames.fill(&mut self.stream), if may_read => read?,
            };
            if read == 0 {
                return Err(Ended::ByClient);
            }
        };
        self.answer(answer).await
    }

    async fn answer_pending(&mut self) -> Result<(), Ended> {
        while !self.pending.is_empty() {
            let answer = match self.ready_answer() {
                Some(answer) => answer,
                None => {
                    self.output.flush(&mut self.stream).await?;
                    front_answer(&mut self.pending).await
                }
            };
            self.answer(answer).await?;
        }
        Ok(())
    }

    fn ready_answer(&mut self) -> Option<Answer> {
        match poll_now(self.pending.front_mut()?) {
            Poll::Ready(answer) => {
                self.pending.pop_front();
                Some(answer)
            }
            Poll::Pending => None,
        }
    }

    async fn answer(&mut self, answer: Answer) -> Result<(), Ended> {
        match answer {
            Answer::Response(response) => Ok(self.output.push(&mut self.stream, response).await?),
            Answer::Silence => Ok(()),
            Answer::Close(reason) => Err(Ended::Refused(reason)),
        }
    }
}

/// What a waiting connection is woken by.
enum Event {
    Answer(Answer),
    Read(Result<io::Result<usize>, Elapsed>),
    Stop,
}

/// Polls once, without asking to be woken.
fn poll_now(work: &mut Work) -> Poll<Answer> {
    work.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

/// Takes the answer at the front when it comes; never, where nothing is pending.
async fn front_answer(pending: &mut VecDeque<Work>) -> Answer {
    let answer = poll_fn(|context| match pending.front_mut() {
        Some(work) => work.as_mut().poll(context),
        None => Poll::Pending,
    })
    .await;
    pending.pop_front();
    answer
}
