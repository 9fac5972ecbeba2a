//! Says of a dedicated control plane that its server is not what was asked for, where that cannot be: it goes on as it was.

use mica_api::control_plane::{Mode, reason};

use super::ControlPlanes;
use super::plan::status::Report;
use super::plan::{Observed, Problem};
use crate::dedicated::{Refused, UPGRADED};

impl ControlPlanes {
    pub(super) fn tell_what_is_held(&self, at: &Observed, report: &mut Report) {
        let mut providers = self.settings.providers.iter();
        let held = match at.spec.mode {
            Mode::Dedicated => providers.find_map(|provider| provider.held(at.name())),
            Mode::Virtual => None,
        };
        match held {
            None => report.dropped.push(UPGRADED),
            Some(Refused::Unacceptable { reason, message }) => report.fail(UPGRADED, &Problem::new(reason, message)),
            Some(Refused::Failed { message }) => report.fail(UPGRADED, &Problem::new(reason::PROVISIONING, message)),
        }
    }
}
