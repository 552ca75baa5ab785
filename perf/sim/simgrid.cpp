// SPDX-License-Identifier: Apache-2.0
/*
 * The network as SimGrid simulates it. A message is a flow. Flows on the same
 * link share it fairly (max-min) while they last.
 *
 * Each rank is a host with two actors: one runs scaling_step(), the other takes
 * messages out of the rank's mailbox. A mailbox with a permanent receiver lets
 * messages start without a rendezvous: they are one-sided, as the library's
 * puts are. (SMPI would add requests, tags and a rendezvous, and its
 * MPI_Waitany() checks every open request each time.) Messages inside a node
 * are no flows: machine.c computes when they end.
 *
 * The platform is one zone that computes its routes: a table of all pairs of
 * thousands of ranks would not fit in memory.
 */
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <simgrid/kernel/routing/NetPoint.hpp>
#include <simgrid/kernel/routing/StarZone.hpp>
#include <simgrid/s4u.hpp>

#include "perf/sim/machine.h"

namespace s4u = simgrid::s4u;
namespace routing = simgrid::kernel::routing;
using Link = simgrid::kernel::resource::StandardLinkImpl;

namespace
{

/* The network: ports, and one link up and one link down for each rail that is
 * slower than its ports together. */
class Fabric : public routing::StarZone
{
  public:
    Fabric(const scaling_machine *machine, const scaling_topology *topology)
        : StarZone("fabric"), machine(machine), topology(topology)
    {
    }

    void build(std::vector<s4u::Host *> *hosts)
    {
        s4u::NetZone *zone = get_iface();

        for (int r = 0; r < topology->ranks; r++) {
            s4u::Host *host = zone->create_host("rank" + std::to_string(r), 1.);
            size_t id = host->get_netpoint()->id();

            if (rank_of.size() <= id)
                rank_of.resize(id + 1);
            rank_of[id] = r;
            hosts->push_back(host);
        }
        for (int p = 0; p < scaling_ports(machine, topology); p++) {
            out.push_back(link("out", p, machine->nic));
            in.push_back(link("in", p, machine->nic));
        }
        for (int l = 0; machine->taper > 0 && l < most_local(); l++) {
            double rate = machine->nic * topology->nodes / machine->taper;

            up.push_back(link("up", l, rate));
            down.push_back(link("down", l, rate));
        }
        zone->seal();
    }

    void get_local_route(const routing::NetPoint *src,
                         const routing::NetPoint *dst, routing::Route *route,
                         double *latency) override
    {
        int from = rank_of[src->id()], to = rank_of[dst->id()];
        int a = topology->local[from], b = topology->local[to];
        bool far = scaling_has_rails(machine) && a != b;

        route->link_list_.push_back(out[scaling_port(machine, topology, from)]);
        if (far && !up.empty()) {
            route->link_list_.push_back(up[a]);
            route->link_list_.push_back(down[b]);
        }
        route->link_list_.push_back(in[scaling_port(machine, topology, to)]);
        *latency += far ? machine->latency_far : machine->latency;
    }

  private:
    Link *link(const char *name, int i, double rate)
    {
        return get_iface()
            ->create_link(name + std::to_string(i), rate)
            ->set_latency(0.)
            ->get_impl();
    }

    int most_local() const
    {
        return 1 + *std::max_element(topology->local,
                                     topology->local + topology->ranks);
    }

    const scaling_machine *machine;
    const scaling_topology *topology;
    std::vector<int> rank_of;
    std::vector<Link *> out, in, up, down;
};

struct Simulation {
    std::vector<s4u::Mailbox *> mailbox;
    std::vector<s4u::SemaphorePtr> woken;
    std::vector<size_t> awaited; /* (ranks) messages from other nodes */
    const scaling_op *ops;
};

Simulation *simulation_of(scaling_world *world)
{
    return static_cast<Simulation *>(world->own);
}

/* Sends a message; called by the actor of the sending rank. */
void send(scaling_world *world, int32_t i)
{
    Simulation *s = simulation_of(world);
    const scaling_op *op = &s->ops[i];

    s->mailbox[op->peer]
        ->put_init(const_cast<scaling_op *>(op), op->bytes)
        ->detach();
}

void wake(scaling_world *world, int rank)
{
    world->ranks[rank].waits = false;
    simulation_of(world)->woken[rank]->release();
}

void work(scaling_world *world, int rank)
{
    Simulation *s = simulation_of(world);

    while (world->ranks[rank].todo) {
        double now = s4u::Engine::get_clock();
        double next = scaling_step(world, rank, now);

        if (!world->ranks[rank].todo)
            break;
        if (!world->ranks[rank].waits)
            s4u::this_actor::sleep_until(next);
        else if (std::isinf(next))
            s->woken[rank]->acquire();
        else
            s->woken[rank]->acquire_timeout(next - now);
    }
}

void receive(scaling_world *world, int rank)
{
    Simulation *s = simulation_of(world);

    for (size_t n = 0; n < s->awaited[rank]; n++) {
        auto *op = s->mailbox[rank]->get<scaling_op>();

        scaling_arrived(world, (int32_t)(op - s->ops),
                        s4u::Engine::get_clock());
    }
}

} // namespace

double scaling_run_simgrid(const scaling_schedule *schedule,
                           const scaling_machine *machine, int window,
                           double precision)
{
    static const scaling_engine ours = {send, wake};
    const scaling_topology *t = schedule->topology;
    std::string name = "scaling";
    char *argv[] = {&name[0], nullptr};
    int argc = 1;
    scaling_world world;
    Simulation simulation;
    std::vector<s4u::Host *> hosts;
    s4u::Engine engine(&argc, argv);

    /* The network must have the machine's rates, without a protocol's overhead.
     * Thousands of actors need small stacks (KiB). */
    xbt_log_control_set("root.thres:error");
    for (const char *setting :
         {"network/model:CM02", "network/crosstraffic:0", "network/TCP-gamma:0",
          "network/bandwidth-factor:1", "network/latency-factor:1",
          "network/weight-S:0", "contexts/stack-size:128"})
        s4u::Engine::set_config(setting);
    s4u::Engine::set_config(
        "surf/precision:" + std::to_string(precision * 1e9) + "e-9");
    (new Fabric(machine, t))->build(&hosts);

    simulation.ops = schedule->ops;
    simulation.awaited.resize(t->ranks);
    for (size_t i = 0; i < schedule->nops; i++) {
        const scaling_op *op = &schedule->ops[i];

        if (op->peer >= 0 && t->node[op->peer] != t->node[op->rank])
            simulation.awaited[op->peer]++;
    }
    scaling_world_init(&world, schedule, machine, window, &ours);
    world.own = &simulation;
    world.tick = precision;
    for (int r = 0; r < t->ranks; r++) {
        simulation.woken.push_back(s4u::Semaphore::create(0));
        simulation.mailbox.push_back(s4u::Mailbox::by_name(std::to_string(r)));
    }
    for (int r = 0; r < t->ranks; r++) {
        auto receiver =
            s4u::Actor::create("receiver", hosts[r], receive, &world, r);

        simulation.mailbox[r]->set_receiver(receiver);
        s4u::Actor::create("rank", hosts[r], work, &world, r);
    }
    engine.run();
    double end = world.open ? NAN : world.end;

    scaling_world_finish(&world);
    return end;
}
