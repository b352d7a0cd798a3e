// Events of workflows as receivers of webhooks get them: CloudEvents 1.0, structured JSON.
#pragma once

#include <string>
#include <vector>

#include "quench/gateway/v1/fleets.pb.h"
#include "services/gateway/event_queue.h"

namespace quench::gateway {

inline constexpr char kWorkflowEnded[] = "quench.workflow.ended";
inline constexpr char kStepEnded[] = "quench.step.ended";
inline constexpr char kFleetEnded[] = "quench.fleet.ended";

// An event for each of the receivers. `id` is the same whenever the same thing is told again; `source`: what it is about,
// `/workflows/{id}`; `data`: a message of the contract, as MessageJson writes it; null if it cannot.
std::vector<QueuedEvent> EventsFor(const std::vector<std::string>& urls, const std::string& type,
                                   const std::string& id, const std::string& source, int64_t now_us,
                                   const google::protobuf::Message& data);

// The events of a fleet that has ended, from all its workflows, without their steps.
std::vector<QueuedEvent> FleetEvents(const std::vector<std::string>& urls,
                                     const std::vector<v1::Workflow>& workflows);

}  // namespace quench::gateway
