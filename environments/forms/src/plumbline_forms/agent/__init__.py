"""The planner of a browser agent: a model that fills in forms, behind the endpoint that the agent
asks."""
