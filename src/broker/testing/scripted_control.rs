//! A control plane that does what a test says.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::broker::control_plane::{ControlPlane, Unanswered};
use crate::controller::{ControllerCall, ControllerReply, Refusal};
use crate::metadata::MetadataImage;
use crate::net::BoxFuture;
use crate::protocol::native::QuorumStatus;

pub(in crate::broker) type Answer = Result<Result<ControllerReply, Refusal>, String>;
type Script = Box<dyn FnMut(&ControllerCall) -> Answer + Send>;

/// Answers calls from a script and remembers them. A test publishes images itself.
pub(in crate::broker) struct ScriptedControl {
    script: Mutex<Script>,
    calls: Mutex<Vec<ControllerCall>>,
    pub(in crate::broker) images: watch::Sender<Arc<MetadataImage>>,
}

impl fmt::Debug for ScriptedControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScriptedControl").finish_non_exhaustive()
    }
}

impl ScriptedControl {
    pub(in crate::broker) fn new(
        script: impl FnMut(&ControllerCall) -> Answer + Send + 'static,
    ) -> Arc<Self> {
        Arc::new(Self {
            script: Mutex::new(Box::new(script)),
            calls: Mutex::default(),
            images: watch::channel(Arc::default()).0,
        })
    }

    pub(in crate::broker) fn calls(&self) -> Vec<ControllerCall> {
        self.calls.lock().clone()
    }
}

impl ControlPlane for ScriptedControl {
    fn images(&self) -> watch::Receiver<Arc<MetadataImage>> {
        self.images.subscribe()
    }

    fn submit(
        &self,
        call: ControllerCall,
        _: Duration,
    ) -> BoxFuture<'static, Result<Result<ControllerReply, Refusal>, Unanswered>> {
        let answer = (self.script.lock())(&call).map_err(Unanswered);
        self.calls.lock().push(call);
        Box::pin(async { answer })
    }

    fn status(&self) -> QuorumStatus {
        QuorumStatus {
            cluster_id: crate::types::Uuid([9; 16]),
            node_id: crate::types::NodeId(1),
            leader_id: None,
            term: 0,
            last_log_index: 0,
            applied_index: 0,
            voters: Vec::new(),
            learners: Vec::new(),
        }
    }
}
