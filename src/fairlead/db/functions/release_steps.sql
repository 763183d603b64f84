-- Creates the jobs of free steps that are exactly one job with the payload of the spec, if the definition is the one that
-- the payload was checked against. Result: `released`, how many; `free`, the other steps, whose jobs the caller creates;
-- `definitions`, the columns needed for that. If a quota refuses the jobs, all steps are left to the caller, which knows
-- which of them fit.
create or replace function fairlead.release_steps(
    runs uuid[], places integer[], ran integer[], settings jsonb
) returns json language plpgsql volatile as $$
declare
    new fairlead.step_job[];
    taken integer[];
    free json;
    definitions json;
begin
    select array_agg(row(
            fairlead.uuid7(), f.run_id, r.tenant_id, r.key, r.correlation_id, f.place, null, d.id,
            coalesce((s.spec ->> 'priority')::int, d.default_priority),
            coalesce((s.spec ->> 'max_attempts')::int, d.max_attempts), (s.spec ->> 'timeout_seconds')::int, s.name,
            coalesce(s.spec -> 'payload', s.spec -> 'sleep', s.spec -> 'wait_for_event', '{}'), null, null, null,
            case when s.spec ? 'tags' then array(select jsonb_array_elements_text(s.spec -> 'tags')) end,
            (s.spec ->> 'expires_in_seconds')::float8)::fairlead.step_job order by f.place),
        array_agg(f.at)
    into new, taken
    from unnest(release_steps.runs, release_steps.places, release_steps.ran) with ordinality as f(run_id, place, ran, at)
    cross join lateral (
        select s.name, s.spec, s.before, s.definition_key, s.checked_version from fairlead.workflow_steps s
        where s.run_id = f.run_id and s.place = f.place limit 1) s
    cross join lateral (
        select d.id, d.default_priority, d.max_attempts from fairlead.job_definitions d
        where d.key = s.definition_key and d.version = s.checked_version
            -- a process seals secrets: the database has no key
            and (d.secret_paths = '{}' or not exists (
                select from fairlead.system y where y.encrypted_since is not null)) limit 1) d
    cross join lateral (
        select r.tenant_id, r.key, r.correlation_id from fairlead.workflow_runs r where r.id = f.run_id limit 1) r
    -- if all steps before it were skipped, the step is skipped
    where f.ran > 0 or cardinality(s.before) = 0;

    if new is not null then
        if fairlead.step_jobs_fit(new, release_steps.settings) then
            perform fairlead.add_step_jobs(new);
        else
            new := null;
            taken := null;
        end if;
    end if;
    if cardinality(release_steps.runs) > coalesce(cardinality(new), 0) then
        select json_agg(json_build_array(
                f.run_id, f.place, s.name, s.spec::text, cardinality(s.before), f.ran, s.definition_key,
                case when cardinality(s.before) = 1 then (
                    select b.name from fairlead.workflow_steps b where b.run_id = f.run_id and b.place = s.before[1])
                end) order by f.place),
            fairlead.definitions_of(array_agg(distinct s.definition_key))
        into free, definitions
        from unnest(release_steps.runs, release_steps.places, release_steps.ran) with ordinality
            as f(run_id, place, ran, at)
        cross join lateral (
            select s.name, s.spec, s.before, s.definition_key from fairlead.workflow_steps s
            where s.run_id = f.run_id and s.place = f.place limit 1) s
        where taken is null or f.at <> all(taken);
    end if;
    return json_build_object(
        'free', free, 'definitions', definitions, 'released', coalesce(cardinality(new), 0));
end
$$;

revoke execute on function fairlead.release_steps from public;
grant execute on function fairlead.release_steps to fairlead_tenant;
