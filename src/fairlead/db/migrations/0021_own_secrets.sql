-- Secrets of single jobs: what a run's input or an event holds as a secret is one wherever a template puts it, also in a field
-- that the job's definition does not mark. Null for nearly all jobs.
alter table fairlead.jobs add column secret_paths text[];

-- A function's definition with some of its text exchanged; each piece has to be there, once.
create or replace function pg_temp.exchanged(definition text, pieces text[]) returns text language plpgsql as $$
declare
    piece text[];
begin
    foreach piece slice 1 in array pieces loop
        if cardinality(string_to_array(definition, piece[1])) <> 2 then
            raise exception 'not there, or not once: %', piece[1];
        end if;
        definition := replace(definition, piece[1], piece[2]);
    end loop;
    return definition;
end
$$;

-- The claim tells the `secrets` of those that have their own.
do $$
declare
    claim constant text :=
        'fairlead.claim(text, uuid, integer, double precision, uuid[], uuid, integer, uuid, text[], boolean)';
begin
    execute pg_temp.exchanged(pg_get_functiondef(claim::regprocedure), array[
        ['j.workflow_run_id, j.timeout_seconds', 'j.workflow_run_id, j.timeout_seconds, j.secret_paths'],
        ['''traces'', json_object_agg',
            '''secrets'', json_object_agg(s.id, s.secret_paths) filter (where s.secret_paths is not null),
        ''traces'', json_object_agg']]);
end
$$;
